"""Local training by stochastic gradient descent, for one client or for several at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from sfumato.claim import Claim
from sfumato.errors import BadValue
from sfumato.local.batches import Schedule, epoch_batches
from sfumato.local.forward import Batch, DropoutMasks
from sfumato.local.task import Task
from sfumato.shapes import Rows


@dataclass(frozen=True)
class Sgd:
    """Each drawn client starts from the global parameters and takes shuffled mini-batch steps; its row is the difference.

    States nothing: however it trains, a client can move its row without bound. `lr` is multiplied by `lr_decay` after
    every round; `proximal` adds proximal/2 * ||w - start||^2 to the loss (FedProx).
    """

    lr: float
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 10
    momentum: float = 0.0
    weight_decay: float = 0.0
    lr_decay: float = 1.0
    proximal: float = 0.0

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise BadValue(f"{self}: give either epochs or steps, e.g. Sgd(lr=0.1, epochs=1).")
        for name, value in (("epochs", self.epochs), ("steps", self.steps), ("batch_size", self.batch_size)):
            if value is not None and value < 1:
                raise BadValue(f"Sgd({name}={value}): at least 1.")
        if not (self.lr > 0.0 and math.isfinite(self.lr)):
            raise BadValue(f"Sgd(lr={self.lr}): the learning rate is positive, e.g. 0.1.")
        if not 0.0 < self.lr_decay <= 1.0:
            raise BadValue(f"Sgd(lr_decay={self.lr_decay}): the factor per round is above 0 and at most 1.")
        if not 0.0 <= self.momentum < 1.0:
            raise BadValue(f"Sgd(momentum={self.momentum}): at least 0 and below 1.")
        if self.weight_decay < 0.0 or self.proximal < 0.0:
            raise BadValue(f"{self}: weight_decay and proximal cannot be negative.")

    def carry(self, claim: Claim) -> Claim:
        """Nothing is bounded."""
        return claim

    def trial(self) -> tuple[Sgd, int]:
        """The same training for two steps, and how many records that takes: for measuring."""
        return replace(self, epochs=None, steps=2), 2 * self.batch_size

    def train(self, task: Task) -> Rows:
        """The rows, in the order given. Clients with fewer steps drop out of the block when they are done."""
        batches = [
            epoch_batches(records.count, self.batch_size, self.epochs, self.steps, key.child("batches"))
            for records, key in zip(task.clients, task.keys, strict=True)
        ]
        schedule = Schedule.of(batches, [records.count for records in task.clients])
        masks = DropoutMasks([task.keys[i].child("dropout") for i in schedule.order])
        x = torch.cat([task.clients[i].x for i in schedule.order])
        y = torch.cat([task.clients[i].y for i in schedule.order])
        starts = task.starts[list(schedule.order)]
        rows = starts.clone()
        velocity: list[torch.Tensor] = []
        lr = self.lr * self.lr_decay**task.round
        for step in range(schedule.steps):
            index, counts = schedule.at(step)
            active, width = len(counts), max(counts)
            parameters = {
                name: value.requires_grad_() for name, value in task.layout.split(rows[:active].detach()).items()
            }
            outputs = task.forward(parameters, Batch(x.index_select(0, index), counts, masks))
            losses = task.loss(outputs, y.index_select(0, index))
            total = losses.sum() / width if min(counts) == width else (losses * _weights(counts).to(losses)).sum()
            leaves = list(parameters.values())
            gradients = torch.autograd.grad(total, leaves, allow_unused=True)
            anchors = task.layout.split(starts[:active]).values() if self.proximal else ()
            velocity = self._step(leaves, gradients, velocity, list(anchors), lr)
        place = torch.from_numpy(np.argsort(schedule.order))
        rows.sub_(task.params)
        return rows if len(task.clients) == 1 else rows.index_select(0, place)

    def _step(
        self,
        leaves: list[torch.Tensor],
        gradients: Sequence[torch.Tensor | None],
        velocity: list[torch.Tensor],
        anchors: list[torch.Tensor],
        lr: float,
    ) -> list[torch.Tensor]:
        """Move the leaves, which are views of the rows, in place; give back the momentum."""
        with torch.no_grad():
            grads = [torch.zeros_like(w) if g is None else g for w, g in zip(leaves, gradients, strict=True)]
            if self.weight_decay:
                torch._foreach_add_(grads, leaves, alpha=self.weight_decay)
            if self.proximal:
                for gradient, leaf, anchor in zip(grads, leaves, anchors, strict=True):
                    gradient.add_(leaf - anchor, alpha=self.proximal)
            if self.momentum:
                if velocity:
                    kept = [v[: len(g)] for v, g in zip(velocity, grads, strict=True)]
                    torch._foreach_mul_(kept, self.momentum)
                    torch._foreach_add_(kept, grads)
                    grads = kept
                velocity = list(grads)
            for leaf, gradient in zip(leaves, grads, strict=True):
                leaf.sub_(gradient, alpha=lr)
            return velocity


def _weights(counts: tuple[int, ...]) -> torch.Tensor:
    """What each place counts in its client's mean: nothing beyond the client's own records."""
    own = torch.tensor(counts, dtype=torch.float64)[:, None]
    return ((torch.arange(max(counts)) < own) / own).flatten()
