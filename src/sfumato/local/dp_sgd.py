"""Local training that is private for each record before anything leaves the client, and the same without privacy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sfumato.account.event import Unit
from sfumato.claim import Claim
from sfumato.data.faults import Fault
from sfumato.data.population import Records
from sfumato.errors import BadValue, DataError
from sfumato.gradients import (
    Batch,
    ClippedSum,
    DropoutMasks,
    LossPerRecord,
    MeanGradients,
    check_records_do_not_mix,
    written_out,
)
from sfumato.key import Key
from sfumato.local.task import Task
from sfumato.pieces.clip import clipped as clip_rows
from sfumato.pieces.exact import ExactLaw, summed_for
from sfumato.pieces.grid import cut_off
from sfumato.pieces.law import Gaussian, Law
from sfumato.pieces.optimizer import GradientDescent
from sfumato.pieces.payment import check_batch, pay_in_local_steps
from sfumato.pieces.protocol import LocalPiece
from sfumato.pieces.sampler import Everyone, FixedSize, Sampler
from sfumato.shapes import Row, Rows


@dataclass(frozen=True)
class DpSgd(LocalPiece):
    """Each step clips every record's gradient, adds noise to their sum, and lets an optimizer move on the noisy mean.

    `batch` draws the records of each step: Poisson(rate), FixedSize(size) or Everyone(). `records` is a public number: the
    fewest records that any client has. The sum is divided by the expected batch, a constant. `law` is the noise, a multiple of
    the `clip` norm, which is that of a record's whole gradient: L2, or L1 with `order` 1. The optimizer starts anew in every
    round; its learning rate is multiplied by `lr_decay` after each. `proximal` pulls a client's model to where it started.

    States, for records: each step is the law's release on sampled records, accounted as drawn. Poisson batches under
    add/remove cost the clip norm, fixed-size ones twice that at rate size/records (a record that joins displaces another); all
    steps of a round happen only when the client takes part, which everybody may see (a mixture). It holds against the server
    too. For clients: nothing. With an exact law (RoundedGaussian) gradients are formed one at a time and cut off at a grid, so
    that no rounding of a sum depends on a record; a batch then takes as long as its records one after another. Records at fault
    (`task.faults`) add zero to each sum, and nothing else changes; so do those that are missing of the declared ones. At most
    `micro_batch` records are in work at once, as many as suit the model if it is 0; results do not depend on it but for rounding.
    """

    steps: int
    batch: Sampler
    records: int
    clip: float = 1.0
    law: Law = field(default_factory=lambda: Gaussian(1.0))
    optimizer: Any = field(default_factory=GradientDescent)
    weight_decay: float = 0.0
    lr_decay: float = 1.0
    proximal: float = 0.0
    order: int = 2
    micro_batch: int = 64
    one_by_one: ClassVar[bool] = True
    fresh_rows: ClassVar[bool] = True
    records_apart: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not all(isinstance(count, int) and count >= 1 for count in (self.steps, self.records)):
            raise BadValue(f"{self}: steps and records are whole numbers of at least 1.")
        if not isinstance(self.micro_batch, int) or self.micro_batch < 0:
            raise BadValue(f"{self}: micro_batch is a whole number of records, or 0 for as many as suit the model.")
        if not (self.clip > 0.0 and math.isfinite(self.clip)):
            raise BadValue(f"DpSgd(clip={self.clip}): a positive, finite number is needed.")
        if self.order not in (1, 2):
            raise BadValue(f"DpSgd(order={self.order}): 1 clips the L1 norm of a gradient, 2 the L2 norm.")
        if not 0.0 < self.lr_decay <= 1.0 or self.weight_decay < 0.0 or self.proximal < 0.0:
            raise BadValue(f"{self}: lr_decay is above 0 and at most 1; weight_decay and proximal are not negative.")
        check_batch(self.batch)
        if isinstance(self.batch, FixedSize) and self.batch.size > self.records:
            raise BadValue(f"DpSgd: batches of {self.batch.size} from {self.records} records. Lower the batch size.")

    @property
    def divisor(self) -> float:
        """The expected batch at the declared number of records: a public constant."""
        return self.batch.expected(self.records)

    def noise_and_norm(self) -> tuple[float, float]:
        return self.law.noise_multiplier, self.clip

    def with_noise(self, noise_multiplier: float) -> DpSgd:
        return replace(self, law=self.law.with_noise(noise_multiplier))

    def declared_records(self) -> int:
        return max(1, self.records)

    def carry(self, claim: Claim) -> Claim:
        return pay_in_local_steps(claim, self.law, self.clip, self.order, self.batch, self.records, self.steps)

    def unproven(self, claim: Claim) -> Claim:
        """How a round without a guarantee goes on: the noise is drawn all the same."""
        return replace(claim, stddev=self.law.stddev(self._rows(self.records, claim.dimension)))

    def _rows(self, records: int, dimension: int) -> Claim:
        """What bounds a record's row, where the noise is added."""
        rows = Claim(Unit.RECORD, self.batch.relation, records, dimension).clipped(self.clip, self.order)
        return summed_for(self.law, rows)

    def check(self, module: nn.Module, loss: LossPerRecord, example: Records) -> None:
        check_records_do_not_mix(module, loss, example.x, example.y)

    def controlled(self, round: int) -> float | None:
        return _controlled(self, round)

    def trial(self) -> tuple[DpSgd, int]:
        records = 2 * self.batch.size if isinstance(self.batch, FixedSize) else self.records
        return replace(self, steps=2, records=records), records

    def train(self, task: Task) -> Rows:
        at_once = 1 if isinstance(self.law, ExactLaw) else self.micro_batch
        clipped = _clipped_sum(task, self.clip, self.order, at_once)
        return torch.stack([self._client(task.only(place), clipped) for place in range(len(task.clients))])

    def _client(self, task: Task, clipped: ClippedSum) -> Row:
        (records,) = task.clients
        faults, population = task.faults, records.count
        if isinstance(self.batch, FixedSize) and records.count < self.records and faults is not None:
            population = self.records  # those that are missing count as zero
        elif isinstance(self.batch, FixedSize) and records.count < self.records:
            raise DataError(
                f"a client has {records.count} records, fewer than the {self.records} that were declared: its batches would draw "
                "each record more often than is accounted. Declare fewer (--records), or leave the client out."
            )

        rows = self._rows(records.count, len(task.params))
        stddev, step = self.law.stddev(rows), rows.grid or 1.0

        def gradient(row: Row, drawn: Tensor, key: Key) -> Row:
            drawn = drawn if faults is None else faults.without(drawn, records.count)

            def fault(place: int, error: Exception) -> None:
                assert faults is not None, "without it nothing is told"
                faults.note(int(drawn[place]), error)

            told = None if faults is None else fault
            if rows.grid is None:
                batch = (
                    records
                    if isinstance(self.batch, Everyone) and len(drawn) == records.count
                    else _chosen(records, drawn)
                )
                total = clipped(row, batch.x, batch.y, key.child("dropout"), told)
            else:
                total = _one_by_one(clipped, row, records, drawn, self.clip, rows, key.child("dropout"), told)
            noise = self.law.sample((len(row),), stddev / step, key.child("noise")).mul_(step).to(row.device)
            noisy = noise.add_(total.double())
            mean = noisy.div_(self.divisor).float()
            if self.weight_decay:
                mean = mean + self.weight_decay * row
            if self.proximal:
                mean = mean + self.proximal * (row - task.starts[0])
            return mean

        return _moved(self, task, gradient, population)


def _chosen(records: Records, drawn: Tensor) -> Records:
    return Records(records.x.index_select(0, drawn), records.y.index_select(0, drawn))  # much faster than x[drawn]


def _one_by_one(
    clipped: ClippedSum,
    row: Row,
    records: Records,
    drawn: Tensor,
    clip: float,
    claim: Claim,
    key: Key,
    fault: Fault | None = None,
) -> Row:
    """The sum of whole steps: each record's gradient is formed, clipped and cut off alone, so that no other one rounds it.

    It is copied first: where a record lies in memory changes how some kernels round, and it lies elsewhere without another one.
    """
    total = torch.zeros(len(row), dtype=torch.float64, device=row.device)
    for place, number in enumerate(drawn.tolist()):
        one, own = slice(number, number + 1), key.child("record", number=number)
        told = None if fault is None else partial(_told, fault, place)
        alone = clipped(row, records.x[one].clone(), records.y[one].clone(), own, told)
        total += cut_off(clip_rows(alone[None].to(row.dtype), clip), claim)[0]
    return total


def _told(fault: Fault, place: int, alone: int, error: Exception) -> None:
    """A record that was computed alone is the first of one."""
    fault(place, error)


@dataclass(frozen=True)
class PlainSteps(LocalPiece):
    """DpSgd without clip and noise: each step draws a batch and moves along its mean gradient.

    States nothing: however it trains, a client can move its row without bound.
    """

    steps: int
    batch: Sampler
    optimizer: Any = field(default_factory=GradientDescent)
    weight_decay: float = 0.0
    lr_decay: float = 1.0
    one_by_one: ClassVar[bool] = True
    fresh_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0.0 < self.lr_decay <= 1.0 or self.weight_decay < 0.0:
            raise BadValue(f"{self}: steps is at least 1, lr_decay above 0 and at most 1, weight_decay not negative.")

    def carry(self, claim: Claim) -> Claim:
        return claim

    def controlled(self, round: int) -> float | None:
        return _controlled(self, round)

    def trial(self) -> tuple[PlainSteps, int]:
        return replace(self, steps=2), 2 * self.batch.size if isinstance(self.batch, FixedSize) else 64

    def train(self, task: Task) -> Rows:
        return torch.stack([self._client(task.only(place)) for place in range(len(task.clients))])

    def _client(self, task: Task) -> Row:
        (records,), (key,) = task.clients, task.keys
        masks = DropoutMasks([key.child("dropout")])
        mean_gradients = MeanGradients.of(task.forward, task.loss, records.x)

        def gradient(row: Row, drawn: Tensor, key: Key) -> Row | None:
            if not len(drawn):
                return None
            batch = Batch(records.x[drawn], (len(drawn),), masks)
            found = mean_gradients(task.layout.split(row[None]), batch, records.y[drawn])
            return torch.cat([part.flatten() for part in written_out(found)]) + self.weight_decay * row

        return _moved(self, task, gradient, task.clients[0].count)


def _moved(
    piece: DpSgd | PlainSteps, task: Task, gradient: Callable[[Row, Tensor, Key], Row | None], population: int
) -> Row:
    """How far a client gets by steps on records drawn from so many; where there is no gradient, no step."""
    (key,) = task.keys
    row = task.starts[0]
    state = piece.optimizer.start(row)
    optimizer = replace(piece.optimizer, lr=piece.optimizer.lr * piece.lr_decay**task.round)
    for step in range(piece.steps):
        own = key.child("step", number=step)
        drawn = torch.from_numpy(piece.batch.draw(population, own.child("batch"))).to(row.device)
        found = gradient(row, drawn, own)
        if found is not None and task.corrections is not None:
            found = found + task.corrections[0]
        if found is not None:
            row, state = optimizer.step(row, state, -found)
    return row - task.params


def _controlled(piece: DpSgd | PlainSteps, round: int) -> float | None:
    """The sum of a round's learning rates, where steps are plain ones along the gradient."""
    optimizer = piece.optimizer
    return piece.steps * optimizer.lr * piece.lr_decay**round if isinstance(optimizer, GradientDescent) else None


# One for each module (each worker has a copy of its own): choosing the fast way takes longer than a step.
_SUMS: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], ClippedSum]] = WeakKeyDictionary()


def _clipped_sum(task: Task, norm: float, order: int, micro_batch: int) -> ClippedSum:
    known = _SUMS.setdefault(task.forward.module, {})
    modes = tuple(part.training for part in task.forward.module.modules())
    facts = (
        task.layout,
        id(task.loss),
        norm,
        order,
        micro_batch,
        modes,
    )  # the sum holds the loss, so its id stays its own
    if facts not in known:
        known[facts] = ClippedSum(task.forward.module, task.layout, task.loss, norm, micro_batch, order)
    return known[facts]
