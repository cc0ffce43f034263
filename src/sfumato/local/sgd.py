"""Local training by stochastic gradient descent, for one client or for several at once."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from sfumato.claim import Claim
from sfumato.client import clipped
from sfumato.errors import BadValue
from sfumato.local.batches import Schedule, epoch_batches
from sfumato.local.forward import Batch, DropoutMasks, Parameters
from sfumato.local.gradients import Gradients, NormPenalty, SharpnessAware
from sfumato.local.products import Products
from sfumato.local.recordwise import losses_apart
from sfumato.local.task import Task
from sfumato.local.working_copy import is_plain_chain
from sfumato.shapes import Rows


@dataclass(frozen=True)
class Sgd:
    """Each drawn client starts from the global parameters and takes shuffled mini-batch steps; its row is the difference.

    States nothing: however it trains, a client can move its row without bound. `lr` is multiplied by `lr_decay` after
    every round. `gradient` may be a sharpness-aware one, `penalties` add to the loss (FedProx, BLUR), and `project` pulls
    the model back into a ball around the global one after every step, as DP-Fed-LS does.
    """

    lr: float
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 10
    momentum: float = 0.0
    weight_decay: float = 0.0
    lr_decay: float = 1.0
    gradient: SharpnessAware | None = None
    penalties: tuple[NormPenalty, ...] = ()
    project: float | None = None

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
        if self.weight_decay < 0.0:
            raise BadValue(f"Sgd(weight_decay={self.weight_decay}): it cannot be negative.")
        if self.project is not None and not self.project > 0.0:
            raise BadValue(f"Sgd(project={self.project}): the radius of the ball is positive.")

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
        starts = task.starts if len(task.clients) == 1 else task.starts[list(schedule.order)]
        rows = starts.clone()
        velocity: list[torch.Tensor] = []
        lr = self.lr * self.lr_decay**task.round
        plain = not self.penalties and self.momentum == 0.0 and is_plain_chain(task.forward.module)
        for step in range(schedule.steps):
            index, counts = schedule.at(step)
            active = len(counts)
            parameters = {
                name: value.requires_grad_() for name, value in task.layout.split(rows[:active].detach()).items()
            }
            batch = Batch(x.index_select(0, index), counts, masks, Products() if plain else None)
            leaves, labels = list(parameters.values()), y.index_select(0, index)
            aside: AbstractContextManager[None] = nullcontext()
            if self.gradient is not None:
                first = _mean_gradients(task, parameters, replace(batch, products=None), labels)
                aside = self.gradient.perturbed(first, leaves)
            with aside:
                gradients = _mean_gradients(task, parameters, batch, labels)
            with torch.no_grad():
                if batch.products is not None:
                    leaves, gradients = batch.products.descend(parameters, gradients, lr, self.weight_decay)
                anchors = list(task.layout.split(starts[:active]).values()) if self.penalties else []
                velocity = self._step(leaves, gradients, velocity, anchors, lr)
                if self.project is not None:
                    rows[:active] = task.params + clipped(rows[:active] - task.params, self.project)
        place = torch.from_numpy(np.argsort(schedule.order))
        rows.sub_(task.params)
        return rows if len(task.clients) == 1 else rows.index_select(0, place)

    def _step(
        self,
        leaves: list[torch.Tensor],
        gradients: Gradients,
        velocity: list[torch.Tensor],
        anchors: list[torch.Tensor],
        lr: float,
    ) -> list[torch.Tensor]:
        """Move the leaves, which are views of the rows, in place; give back the momentum."""
        grads = gradients
        if self.weight_decay:
            torch._foreach_add_(grads, leaves, alpha=self.weight_decay)
        for penalty in self.penalties:
            penalty.add_to(grads, leaves, anchors)
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


def _mean_gradients(task: Task, parameters: Parameters, batch: Batch, y: torch.Tensor) -> Gradients:
    """The gradient of each client's mean loss over its own records; empty where it is left as a product."""
    losses = losses_apart(task.loss, task.forward(parameters, batch), y, batch.width)
    even = min(batch.counts) == batch.width
    total = losses.sum() / batch.width if even else (losses * _weights(batch.counts).to(losses)).sum()
    leaves = list(parameters.values())
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    kept = batch.products.of if batch.products is not None else {}
    places: set[int] = set()
    gradients = []
    for (name, leaf), gradient in zip(parameters.items(), found, strict=True):
        if gradient is None:
            gradient = leaf.new_zeros(0 if kept.get(name) else leaf.shape)
        elif not gradient.is_contiguous() or gradient.untyped_storage().data_ptr() in places:
            gradient = gradient.clone(memory_format=torch.contiguous_format)  # steps write to it: it must be its own
        places.add(gradient.untyped_storage().data_ptr())
        gradients.append(gradient)
    return gradients


def _weights(counts: tuple[int, ...]) -> torch.Tensor:
    """What each place counts in its client's mean: nothing beyond the client's own records."""
    own = torch.tensor(counts, dtype=torch.float64)[:, None]
    return ((torch.arange(max(counts)) < own) / own).flatten()


def local_sgd(
    lr: float,
    epochs: int,
    steps: int,
    batch_size: int,
    momentum: float,
    weight_decay: float,
    lr_decay: float,
    proximal: float,
) -> Sgd:
    """Sgd from the options that recipes share: steps count instead of epochs if there are any."""
    if not proximal >= 0.0:
        raise BadValue(f"proximal={proximal}: the strength of the pull to the global model is not negative, e.g. 0.1.")
    return Sgd(
        lr=lr,
        epochs=None if steps else epochs,
        steps=steps or None,
        batch_size=batch_size,
        momentum=momentum,
        weight_decay=weight_decay,
        lr_decay=lr_decay,
        penalties=(NormPenalty(proximal),) if proximal else (),
    )
