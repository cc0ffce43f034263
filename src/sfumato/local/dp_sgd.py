"""Local training that is private for each record before anything leaves the client."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sfumato.account.event import (
    Event,
    FixedSizeSampled,
    GaussianEvent,
    Mixture,
    PoissonSampled,
    Relation,
    Repeated,
    Unit,
)
from sfumato.claim import Claim
from sfumato.data.population import Records
from sfumato.errors import BadValue, DataError, UnsoundRound
from sfumato.gradients import ClippedSum, LossPerRecord, check_records_do_not_mix
from sfumato.local.task import Task
from sfumato.pieces.optimizer import GradientDescent
from sfumato.pieces.sampler import Everyone, FixedSize, Poisson
from sfumato.shapes import Row, Rows


@dataclass(frozen=True)
class DpSgd:
    """Each step clips every record's gradient, adds noise to their sum, and lets an optimizer move on the noisy mean.

    `batch` draws the records of each step: Poisson(rate), FixedSize(size) or Everyone(). `records` is a public number: the
    fewest records that any client has. The sum is divided by the expected batch, a constant. `noise_multiplier` is the
    standard deviation over the `clip` norm. The optimizer starts anew in every round; its learning rate is multiplied by
    `lr_decay` after each. `proximal` pulls a client's model to where it started.

    States, for records: each step is the Gaussian mechanism on sampled records, accounted as drawn. Poisson batches under
    add/remove cost the clip norm, fixed-size ones under replace twice that at rate size/records; all steps of a round happen
    only when the client takes part, which everybody may see (a mixture). It holds against the server too. For clients: nothing.
    """

    steps: int
    batch: Poisson | FixedSize | Everyone
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
        if not isinstance(self.batch, Poisson | FixedSize | Everyone):
            raise UnsoundRound(
                f"DpSgd(batch={self.batch!r}): records that take turns in shuffled epochs are not drawn independently, so the "
                "amplification that is proven for random batches does not hold.",
                "use batch=Poisson(rate) or batch=FixedSize(size), which draw anew in every step.",
            )
        if self.batch.relation is Relation.ZERO_OUT:
            raise UnsoundRound(
                "DpSgd hides a record that is there or not, or is swapped; zero-out is about clients' messages.",
                "use batch=Poisson(rate) or relation='replace'.",
            )
        if isinstance(self.batch, FixedSize) and self.batch.size > self.records:
            raise BadValue(f"DpSgd: batches of {self.batch.size} from {self.records} records. Lower the batch size.")
        if isinstance(self.batch, FixedSize) and self.batch.relation is not Relation.REPLACE:
            raise UnsoundRound(
                "DpSgd with fixed-size batches hides a record that is swapped for another; whether a record is there at all "
                "changes the rate, which is not accounted.",
                "use FixedSize with relation='replace', or Poisson batches for add/remove.",
            )

    @property
    def divisor(self) -> float:
        """The expected batch at the declared number of records: a public constant."""
        return self.batch.expected(self.records)

    def with_noise(self, noise_multiplier: float) -> DpSgd:
        """The same with other noise."""
        return replace(self, noise_multiplier=noise_multiplier)

    def step_event(self) -> Event:
        """What one step costs a record."""
        relation = self.batch.relation
        noise = GaussianEvent(self.noise_multiplier / self.batch.stretch(relation))
        if isinstance(self.batch, Poisson):
            return PoissonSampled(self.batch.rate, noise, relation)
        if isinstance(self.batch, FixedSize):
            return FixedSizeSampled(self.batch.size / self.records, noise, relation)
        return noise

    def carry(self, claim: Claim) -> Claim:
        """Records are paid for; clients are not."""
        if claim.unit is Unit.CLIENT:
            return claim
        assert claim.sampling is not None, "the sampler comes first"
        event = claim.sampling.observed(Repeated(self.step_event(), self.steps), claim)
        stretch = self.batch.stretch(self.batch.relation)
        return replace(
            claim,
            relation=self.batch.relation,
            world=event,
            server=event,
            local_paid=True,
            stddev=self.noise_multiplier * self.clip,
            noise_sensitivity=self.clip * stretch,
        ).assuming("idealised real arithmetic", *self._assumptions(event))

    def _assumptions(self, event: Event) -> list[str]:
        honest = ["the server samples honestly"] if isinstance(event, Mixture) else []
        declared = ["each client has at least the declared number of records"]
        return honest + (declared if isinstance(self.batch, FixedSize) else [])

    def check(self, module: nn.Module, loss: LossPerRecord, example: Records) -> None:
        """Refuse a module or a loss in which records reach each other."""
        check_records_do_not_mix(module, loss, example.x, example.y)

    def trial(self) -> tuple[DpSgd, int]:
        """The same training for two steps, and how many records that takes: for measuring."""
        records = 2 * self.batch.size if isinstance(self.batch, FixedSize) else self.records
        return replace(self, steps=2, records=records), records

    def train(self, task: Task) -> Rows:
        """The rows, one client after another."""
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
