"""Local training by any optimizer, without privacy: what DpSgd is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from sfumato.claim import Claim
from sfumato.errors import BadValue
from sfumato.gradients import Batch, DropoutMasks, MeanGradients, written_out
from sfumato.local.task import Task
from sfumato.pieces.optimizer import GradientDescent
from sfumato.pieces.protocol import LocalPiece
from sfumato.pieces.sampler import FixedSize, Sampler
from sfumato.shapes import Row, Rows


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

    def trial(self) -> tuple[PlainSteps, int]:
        return replace(self, steps=2), 2 * self.batch.size if isinstance(self.batch, FixedSize) else 64

    def train(self, task: Task) -> Rows:
        return torch.stack([self._client(task.only(place)) for place in range(len(task.clients))])

    def _client(self, task: Task) -> Row:
        (records,), (key,) = task.clients, task.keys
        row = task.starts[0]
        state = self.optimizer.start(row)
        optimizer = replace(self.optimizer, lr=self.optimizer.lr * self.lr_decay**task.round)
        masks = DropoutMasks([key.child("dropout")])
        mean_gradients = MeanGradients.of(task.forward, task.loss, records.x)
        for step in range(self.steps):
            drawn = torch.from_numpy(self.batch.draw(records.count, key.child("step", number=step).child("batch")))
            if not len(drawn):
                continue
            batch = Batch(records.x[drawn], (len(drawn),), masks)
            found = mean_gradients(task.layout.split(row[None]), batch, records.y[drawn])
            gradient = torch.cat([part.flatten() for part in written_out(found)])
            row, state = optimizer.step(row, state, -(gradient + self.weight_decay * row))
        return row - task.params
