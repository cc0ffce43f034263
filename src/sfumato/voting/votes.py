"""Votes instead of updates: what a client sends is its answers to the queries of a round."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from sfumato.claim import Claim, text
from sfumato.errors import BadValue
from sfumato.pieces.protocol import LocalPiece
from sfumato.voting.bounds import Bounds as Bounds
from sfumato.voting.queries import Queries

if TYPE_CHECKING:
    from sfumato.data.population import Records
    from sfumato.gradients import LossPerRecord
    from sfumato.local.task import Task
    from sfumato.pieces.context import Facts
    from sfumato.update import Layout


@runtime_checkable
class Voter(Protocol):
    """How a client answers."""

    @abstractmethod
    def ballots(self, task: Task, questions: Tensor, classes: int) -> Tensor:
        """Each client's answer to each question [clients, questions, classes]; a client without records votes nothing.

        An answer depends on the client's own records and keys only, not even in its last bit on who is computed beside it.
        """

    @abstractmethod
    def bounds(self, classes: int) -> Bounds:
        """What holds of one answer, whatever the client's data."""

    def check(self, classes: int, example: Records) -> None:
        """Refuse records that it cannot vote with, before anything is spent (default: take any)."""
        return

    @property
    def by_number(self) -> bool:
        """Whether a client with another number would answer in another way (default: no)."""
        return False

    @property
    def records_apart(self) -> bool:
        """Whether it leaves out single records that are at fault (`task.faults`; default: a client that fails votes nothing)."""
        return False


@dataclass(frozen=True)
class Votes(LocalPiece):
    """Clients answer the queries of a round; a row is all answers of a client, query after query.

    States: what the voter states of one answer holds for each of `count` queries, so a row's L2 norm, the distance of two rows
    and the move by one record are sqrt(count) times those of one answer, and `count` times in L1. All queries of a round
    are released by one noisy sum. That later queries are chosen by what was released is adaptive composition.
    Queries are public, so how a client answers depends on its own data alone: clients are computed one by one.
    """

    voter: Voter
    queries: Queries
    classes: int
    one_by_one: ClassVar[bool] = True
    fresh_rows: ClassVar[bool] = True
    keeps_distances: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.classes, bool) or not isinstance(self.classes, int) or self.classes < 1:
            raise BadValue(f"Votes(classes={self.classes!r}): how many classes an answer chooses from, at least 1.")

    @property
    def by_number(self) -> bool:
        return self.voter.by_number

    @property
    def records_apart(self) -> bool:
        return self.voter.records_apart

    def message_length(self, layout: Layout) -> int:
        return self.queries.count * self.classes

    def check(self, module: nn.Module, loss: LossPerRecord, example: Records) -> None:
        asked, own = tuple(self.queries.pool.shape[1:]), tuple(example.x.shape[1:])
        if asked != own:
            raise BadValue(
                f"the public records have shape {asked}, and the clients' {own}. Bring both to one shape, e.g. with --features."
            )
        self.voter.check(self.classes, example)

    def prepare(self, facts: Facts) -> Tensor:
        """The numbers of the queries of this round."""
        return self.queries.chosen(facts.state)

    def trial(self) -> None:
        """Nothing: a client votes by many small steps, which gain nothing from a second core; and a teacher is kept, so that
        asking it again says nothing of what its training takes."""
        return

    def train(self, task: Task) -> Tensor:
        asked = torch.arange(self.queries.count) if task.shared is None else task.shared.cpu()
        questions = self.queries.pool[asked].to(task.params.device)
        answers = [self._answers(task.only(place), questions) for place in range(len(task.clients))]
        return torch.cat([task.params.new_empty(0, len(questions) * self.classes), *answers]).float()

    def _answers(self, task: Task, questions: Tensor) -> Tensor:
        found, wanted = self.voter.ballots(task, questions, self.classes), (1, len(questions), self.classes)
        if found.shape != wanted:
            raise BadValue(f"{text(self.voter)}: a client's ballots have shape {tuple(found.shape)}. Give {wanted}.")
        return found.reshape(1, -1)

    def carry(self, claim: Claim) -> Claim:
        count = self.queries.count
        rows = replace(claim, dimension=count * self.classes)
        answers = self.voter.bounds(self.classes).carry(rows, count)
        return answers if self.queries.public is None else answers.assuming(self.queries.public.declared)
