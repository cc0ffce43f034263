"""Local training by stochastic gradient descent, for one client or for several at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from sfumato.claim import Claim
from sfumato.errors import BadValue
from sfumato.gradients import Batch, DropoutMasks, MeanGradients, Product, written_out
from sfumato.local.batches import Schedule, epoch_batches
from sfumato.local.penalty import NormPenalty
from sfumato.local.sharpness import SharpnessAware
from sfumato.local.task import Task
from sfumato.pieces.clip import clipped
from sfumato.pieces.protocol import LocalPiece
from sfumato.shapes import Rows


@dataclass(frozen=True)
class Sgd(LocalPiece):
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
    fresh_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise BadValue(f"{self}: give either epochs or steps, e.g. Sgd(lr=0.1, epochs=1).")
        for name, value in (("epochs", self.epochs), ("steps", self.steps), ("batch_size", self.batch_size)):
            if value is not None and value < 1:
                raise BadValue(f"Sgd({name}={value}): at least 1.")
        if not (self.lr > 0.0 and math.isfinite(self.lr)):
            raise BadValue(f"Sgd(lr={self.lr}): the learning rate is positive and finite, e.g. 0.1.")
        if not 0.0 < self.lr_decay <= 1.0:
            raise BadValue(f"Sgd(lr_decay={self.lr_decay}): the factor per round is above 0 and at most 1.")
        if not 0.0 <= self.momentum < 1.0:
            raise BadValue(f"Sgd(momentum={self.momentum}): at least 0 and below 1.")
        if self.weight_decay < 0.0:
            raise BadValue(f"Sgd(weight_decay={self.weight_decay}): it cannot be negative.")
        if self.project is not None and not self.project > 0.0:
            raise BadValue(f"Sgd(project={self.project}): the radius of the ball is positive.")

    def carry(self, claim: Claim) -> Claim:
        return claim

    def controlled(self, round: int) -> float | None:
        plain = self.steps is not None and not self.momentum and self.project is None
        return self.steps * self.lr * self.lr_decay**round if plain and self.steps else None

    def trial(self) -> tuple[Sgd, int]:
        if self.epochs is None:
            return replace(self, steps=4), 4 * self.batch_size
        return replace(self, epochs=min(self.epochs, 3)), 2 * self.batch_size

    def train(self, task: Task) -> Rows:
        """The rows, in the order given. Clients with fewer steps drop out of the block when they are done."""
        batches = [
            epoch_batches(records.count, self.batch_size, self.epochs, self.steps, key.child("batches"))
            for records, key in zip(task.clients, task.keys, strict=True)
        ]
        mean_gradients = MeanGradients.of(task.forward, task.loss, task.clients[0].x, len(task.clients))
        widths = [0] * len(batches)
        if self._linear and task.together and task.corrections is None:
            visits = [int((own >= 0).sum()) for own in batches]
            widths = [mean_gradients.span_width(one.x, often) for one, often in zip(task.clients, visits, strict=True)]
        rows = torch.empty_like(task.starts, memory_format=torch.contiguous_format)
        for width in dict.fromkeys(widths):
            places = [place for place, own in enumerate(widths) if own == width]
            schedule = Schedule.of([batches[i] for i in places], [task.clients[i].count for i in places])
            order = [places[i] for i in schedule.order]
            if order == list(range(len(widths))):
                return self._train(task, mean_gradients, schedule, width)
            found = self._train(task.some(order), mean_gradients, schedule, width)
            rows.index_copy_(0, torch.tensor(order, device=rows.device), found)
        return rows

    def _train(self, task: Task, mean_gradients: MeanGradients, schedule: Schedule, width: int) -> Rows:
        """The same for clients in the order of the schedule, all in the weight or all in a span of about this width."""
        masks = DropoutMasks([key.child("dropout") for key in task.keys])
        y = torch.cat([records.y for records in task.clients])
        clients, span = [records.x for records in task.clients], None
        if width:
            mean_gradients, span = mean_gradients.in_span(task.layout, task.params, task.starts, clients)
            x, start = span.x, span.start
        else:
            x, start = torch.cat(clients), task.layout.split(task.starts)
        rows = torch.empty_like(task.starts, memory_format=torch.contiguous_format)
        views = task.layout.split(rows)
        if len(rows) == 1 and span is None:
            # A client's layers are views of its row.
            rows.copy_(task.starts)
            model = views
        else:
            # Several clients' views lie apart, and batched products want them together.
            model = {name: value.clone(memory_format=torch.contiguous_format) for name, value in start.items()}
        velocity: list[Tensor] = []
        lr = self.lr * self.lr_decay**task.round
        for step in range(schedule.steps):
            index, counts = schedule.at(step, x.device)
            active = len(counts)
            everyone = active == len(rows)
            parameters = model if everyone else {name: value[:active] for name, value in model.items()}
            batch = Batch(x.index_select(0, index), counts, masks)
            labels, leaves = y.index_select(0, index), list(parameters.values())
            gradients = mean_gradients(parameters, batch, labels)
            if self.gradient is not None:
                worst = dict(zip(parameters, self.gradient.perturbed(gradients, leaves), strict=True))
                gradients = mean_gradients(worst, batch, labels)
            with torch.no_grad():
                anchors = list(task.layout.split(task.starts[:active]).values()) if self.penalties else []
                if task.corrections is not None:
                    gradients = written_out(gradients)
                    torch._foreach_add_(gradients, list(task.layout.split(task.corrections[:active]).values()))
                velocity = self.step(leaves, gradients, velocity, anchors, lr)
                if self.project is not None:
                    reached = torch.cat([leaf.reshape(active, -1) for leaf in leaves], dim=1)
                    inside = task.params + clipped(reached - task.params, self.project)
                    torch._foreach_copy_(leaves, list(task.layout.split(inside).values()))
        if span is not None:
            span.write(model, views)
        for name, origin in task.layout.split(task.params).items():
            if span is None or name not in span.names.values():
                torch.sub(model[name], origin, out=views[name])
        return rows

    @property
    def _linear(self) -> bool:
        """Whether a step adds nothing but multiples of gradients."""
        return self.gradient is None and not self.penalties and self.project is None and not self.weight_decay

    def step(
        self,
        leaves: list[Tensor],
        found: Sequence[Tensor | Product],
        velocity: list[Tensor],
        anchors: list[Tensor],
        lr: float,
    ) -> list[Tensor]:
        """Move the leaves in place; give back the momentum."""
        if not self.momentum and not self.penalties:
            for leaf, gradient in zip(leaves, found, strict=True):
                if isinstance(gradient, Product):
                    gradient.descend(leaf, lr, 1.0 - lr * self.weight_decay)
            leaves = [leaf for leaf, gradient in zip(leaves, found, strict=True) if not isinstance(gradient, Product)]
            found = [gradient for gradient in found if not isinstance(gradient, Product)]
        grads = written_out(found)
        if self.weight_decay and grads:
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
