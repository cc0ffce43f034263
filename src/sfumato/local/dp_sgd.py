"""Local training that is private for each record before anything leaves the client."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sfumato.claim import Claim
from sfumato.data.population import Records
from sfumato.errors import BadValue, DataError
from sfumato.gradients import ClippedSum, LossPerRecord, check_records_do_not_mix
from sfumato.local.task import Task
from sfumato.pieces.law import Gaussian
from sfumato.pieces.optimizer import GradientDescent
from sfumato.pieces.payment import check_batch, pay_in_local_steps
from sfumato.pieces.protocol import LocalPiece
from sfumato.pieces.sampler import FixedSize, Sampler
from sfumato.shapes import Row, Rows


@dataclass(frozen=True)
class DpSgd(LocalPiece):
    """Each step clips every record's gradient, adds noise to their sum, and lets an optimizer move on the noisy mean.

    `batch` draws the records of each step: Poisson(rate), FixedSize(size) or Everyone(). `records` is a public number: the
    fewest records that any client has. The sum is divided by the expected batch, a constant. `noise_multiplier` is the
    standard deviation over the `clip` norm. The optimizer starts anew in every round; its learning rate is multiplied by
    `lr_decay` after each. `proximal` pulls a client's model to where it started.

    States, for records: each step is the Gaussian mechanism on sampled records, accounted as drawn. Poisson batches under
    add/remove cost the clip norm, fixed-size ones twice that at rate size/records (a record that joins displaces another); all
    steps of a round happen only when the client takes part, which everybody may see (a mixture). It holds against the server
    too. For clients: nothing.
    """

    steps: int
    batch: Sampler
    records: int
    clip: float = 1.0
    noise_multiplier: float = 1.0
    optimizer: Any = field(default_factory=GradientDescent)
    weight_decay: float = 0.0
    lr_decay: float = 1.0
    proximal: float = 0.0
    micro_batch: int = 64
    one_by_one: ClassVar[bool] = True
    fresh_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.steps < 1 or self.records < 1 or self.micro_batch < 1:
            raise BadValue(f"{self}: steps, records and micro_batch are whole numbers of at least 1.")
        for name in ("clip", "noise_multiplier"):
            if not (getattr(self, name) > 0.0 and math.isfinite(getattr(self, name))):
                raise BadValue(f"DpSgd({name}={getattr(self, name)}): a positive, finite number is needed.")
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
        return self.noise_multiplier, self.clip

    def with_noise(self, noise_multiplier: float) -> DpSgd:
        return replace(self, noise_multiplier=noise_multiplier)

    def carry(self, claim: Claim) -> Claim:
        return pay_in_local_steps(claim, self.law, self.clip, self.batch, self.records, self.steps)

    @property
    def law(self) -> Gaussian:
        return Gaussian(self.noise_multiplier)

    def check(self, module: nn.Module, loss: LossPerRecord, example: Records) -> None:
        check_records_do_not_mix(module, loss, example.x, example.y)

    def trial(self) -> tuple[DpSgd, int]:
        records = 2 * self.batch.size if isinstance(self.batch, FixedSize) else self.records
        return replace(self, steps=2, records=records), records

    def train(self, task: Task) -> Rows:
        clipped = _clipped_sum(task, self.clip, self.micro_batch)
        return torch.stack([self._client(task.only(place), clipped) for place in range(len(task.clients))])

    def _client(self, task: Task, clipped: ClippedSum) -> Row:
        (records,), (key,) = task.clients, task.keys
        if isinstance(self.batch, FixedSize) and records.count < self.records:
            raise DataError(
                f"a client has {records.count} records, fewer than the {self.records} that were declared: its batches would draw "
                "each record more often than is accounted. Declare fewer (--records), or leave the client out."
            )
        row = start = task.starts[0]
        state = self.optimizer.start(row)
        optimizer = replace(self.optimizer, lr=self.optimizer.lr * self.lr_decay**task.round)
        for step in range(self.steps):
            own = key.child("step", number=step)
            drawn = torch.from_numpy(self.batch.draw(records.count, own.child("batch")))
            total = clipped(row, records.x[drawn], records.y[drawn], own.child("dropout"))
            noisy = own.child("noise").normal(len(row)).mul_(self.noise_multiplier * self.clip).add_(total.double())
            gradient = noisy.div_(self.divisor).float()
            if self.weight_decay:
                gradient = gradient + self.weight_decay * row
            if self.proximal:
                gradient = gradient + self.proximal * (row - start)
            row, state = optimizer.step(row, state, -gradient)
        return row - task.params


# One for each module (each worker has a copy of its own): choosing the fast way takes longer than a step.
_SUMS: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], ClippedSum]] = WeakKeyDictionary()


def _clipped_sum(task: Task, norm: float, micro_batch: int) -> ClippedSum:
    known = _SUMS.setdefault(task.forward.module, {})
    modes = tuple(part.training for part in task.forward.module.modules())
    facts = (task.layout, id(task.loss), norm, micro_batch, modes)  # the sum holds the loss, so its id stays its own
    if facts not in known:
        known[facts] = ClippedSum(task.forward.module, task.layout, task.loss, norm, micro_batch)
    return known[facts]
