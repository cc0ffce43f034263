"""Votes without training: a client answers with the labels of the records that are nearest to the question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.data.faults import Faults, out_of_memory
from sfumato.data.population import Records
from sfumato.data.record_map import RecordFailed, as_record_map
from sfumato.errors import BadValue, DataError
from sfumato.voting.bounds import Bounds
from sfumato.voting.nearest import nearest
from sfumato.voting.votes import Voter

if TYPE_CHECKING:
    from sfumato.local.task import Task

GRID = 2**24  # votes are whole numbers of such parts, which float32 holds and adds within one client exactly


@dataclass(frozen=True)
class Neighbours(Voter):
    """The labels of the `k` nearest records, each a vote of 1/k, k a constant: neighbours that a client lacks vote nothing.

    With `attributes` a target is a row of zeros and ones, of which a neighbour votes for the first so many ones at most.
    `features` maps records and questions to the vectors that are compared (default: their numbers as they are). A module or a
    function of your own maps each alone, because what a network computes for one record depends in its last bits on how many are
    in its batch; a module is copied, frozen and put into evaluation mode.
    A record whose vector is not finite votes nothing. A slow map is better applied once, before training.

    States (R10; tau is `attributes`, or 1): an answer is the sum of at most k label vectors over k, each of at most tau
    ones. So it is not negative, no coordinate is above 1 and they add up to at most tau, whatever the data: the norm and the
    distance of any two answers are those of `Bounds.of_labels`, sqrt(tau) and sqrt(min(2 tau, classes)), in L1 their squares.

    One record moves an answer by a k-th of that distance at most. Let T be the k nearest of all other records, and t the last
    of them, or nothing if T has fewer than k. In the order of `nearest` they stand as they stand whatever the record is, and
    whichever number it has, so those who vote are T, or T with the record in the place of t. Two such answers differ by
    (a - b) / k, where a and b are label vectors or zero: the record's before and after, or its own and that of t. This holds
    where the record is replaced, and where it is added or removed: one of the answers is then that of T. It would not hold
    with the number of records for k.

    Every vote is the whole number of 2^-24 just under 1/k, so all of this is true of the floating-point numbers too.

    >>> from sfumato import Records
    >>> near, questions = Neighbours(2), torch.tensor([[0.0], [5.0]])
    >>> near.answers(Records(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 2, 2])), questions, 3, "client 0")
    tensor([[0.5000, 0.0000, 0.5000],
            [0.0000, 0.0000, 1.0000]])
    """

    k: int
    features: Callable[[Tensor], Tensor] | None = None
    attributes: int = 0
    records_apart: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, value, least in (("k", self.k, 1), ("attributes", self.attributes, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 2**20:
                raise BadValue(f"Neighbours({name}={value!r}): {name} is a whole number from {least} to 2^20.")
        if self.features is not None:
            object.__setattr__(self, "features", as_record_map(self.features))

    def bounds(self, classes: int) -> Bounds:
        return Bounds.of_labels(classes, self.attributes).shared_by(self.k)

    def check(self, classes: int, example: Records) -> None:
        if self.attributes > classes:
            raise BadValue(f"Neighbours(attributes={self.attributes}): there are {classes} of them. Cut to fewer.")
        shape, wanted = tuple(example.y.shape[1:]), (classes,) if self.attributes else ()
        if shape != wanted or not (self.attributes or example.y.dtype == torch.int64):
            raise BadValue(
                f"targets have shape {shape} and type {example.y.dtype}, but {self._votes_on(classes)}. Give such targets, and "
                "attributes=N for rows of zeros and ones."
            )

    def ballots(self, task: Task, questions: Tensor, classes: int) -> Tensor:
        asked = self._mapped(questions)
        names = [f"client {one}" for one in task.ids] or [
            f"client {place} of the block" for place in range(len(task.clients))
        ]
        answers = [
            self.answers(records, asked, classes, name, task.faults)
            for records, name in zip(task.clients, names, strict=True)
        ]
        return torch.stack(answers)

    def answers(self, records: Records, asked: Tensor, classes: int, who: str, faults: Faults | None = None) -> Tensor:
        """The answers of one client to questions that are mapped already; with `faults`, records at fault vote nothing."""
        votes = torch.zeros(len(asked), classes, device=asked.device)
        if faults is not None:
            records = self._without_faults(records, asked, classes, faults)
        if records.count == 0:
            return votes
        try:
            labels, points = self._labels(records.y, classes, who), self._mapped(records.x)
        except RecordFailed as failed:
            raise failed.of(who) from failed.__cause__
        finite = points.isfinite().all(1)
        labels, points = labels[finite], points[finite]
        for place in nearest(asked, points, self.k).T:
            votes += labels[place]
        return votes * ((GRID // self.k) / GRID)

    def _without_faults(self, records: Records, asked: Tensor, classes: int, faults: Faults) -> Records:
        """The records that can vote, each looked at alone: its target fits, and it is mapped to as many numbers as a question."""
        every = torch.arange(records.count, device=records.x.device)
        for record in (~self._fits(records.y, classes)).nonzero().flatten().tolist():
            faults.records.setdefault(record, f"its target does not fit: {self._votes_on(classes)}")
        for record in faults.without(every, records.count).tolist() if self.features is not None else ():
            try:
                if self._mapped(records.x[record : record + 1]).shape[1:] != asked.shape[1:]:
                    faults.records[record] = "it is mapped to another shape than questions are"
            except Exception as error:
                if out_of_memory(error):
                    raise
                faults.note(record, error)
        good = faults.without(every, records.count)
        return Records(records.x[good], records.y[good])

    def _fits(self, y: Tensor, classes: int) -> Tensor:
        """Whether each record has a target that can be voted for."""
        good = (y == 0) | (y == 1) if self.attributes else (y >= 0) & (y < classes)
        return good.flatten(1).all(1) if good.dim() > 1 else good

    def _labels(self, y: Tensor, classes: int, who: str) -> Tensor:
        """One row for each record, of at most `attributes` ones, or a single one."""
        good = self._fits(y, classes)
        if not bool(good.all()):
            record = int((~good).nonzero()[0])
            raise DataError(
                f"{who}, record {record}: its target does not fit: {self._votes_on(classes)}. Fix the client's data, or leave the "
                "client out."
            )
        if not self.attributes:
            return functional.one_hot(y, classes).float()
        return y.float() * (y.cumsum(1) <= self.attributes)

    def _votes_on(self, classes: int) -> str:
        return f"votes are on {classes} " + (
            "attributes, each 0 or 1" if self.attributes else f"classes, 0 to {classes - 1}"
        )

    @torch.no_grad()
    def _mapped(self, x: Tensor) -> Tensor:
        """One row of float32 for each record, that depends on nothing but the record."""
        x = x if self.features is None else self.features(x)
        return x.reshape(len(x), -1).float()
