"""Virtual adversarial training (Miyato et al. 2018): a student that answers alike around every public record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.claim import text
from sfumato.errors import BadValue
from sfumato.objective import Objective
from sfumato.pieces.context import StepContext
from sfumato.voting.learners import Fit, Learner, Lesson

Apart: TypeAlias = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class VirtualAdversarial(Learner):
    """`Fit`, whose steps also keep predictions from changing in the direction in which they change most.

    For a batch of the whole public pool, labelled or not: from a random direction of length `probe`, `iterations` of the power
    method toward the largest divergence of predictions, then `weight` times the divergence at distance `radius`. Both are L2
    distances of inputs, in units of the pool's spread (the root of its mean squared distance from its mean), so that one value
    fits pixels and features of any scale. Classes diverge as one distribution, attributes each as its own.
    """

    fit: Fit = field(default_factory=Fit)
    radius: float = 0.25
    probe: float = 0.02
    iterations: int = 1
    weight: float = 1.0
    batch_size: int = 96

    def __post_init__(self) -> None:
        positive = self.radius > 0.0 and self.probe > 0.0 and self.weight > 0.0
        if not positive or self.iterations < 1 or self.batch_size < 1:
            raise BadValue(
                f"{text(self)}: radius, probe and weight are positive, iterations and batch_size at least 1."
            )

    def check(self, module: nn.Module, objective: Objective, pool: Tensor) -> None:
        if objective.task not in ("classification", "multi-label"):
            raise BadValue(f"{text(self)} compares classes or attributes, and the task is {objective.name}. Use Fit.")
        if not pool.is_floating_point():
            raise BadValue(f"{text(self)} moves inputs a little, and these are {pool.dtype}. Use Fit.")

    def teach(self, module: nn.Module, lesson: Lesson, context: StepContext) -> None:
        self.check(module, context.objective, lesson.pool)
        draws = context.key.child("directions").generator()
        apart = attributes_apart if context.objective.task == "multi-label" else classes_apart
        spread = float(lesson.pool.flatten(1).std(dim=0, correction=0).norm()) or 1.0

        def extra(student: nn.Module) -> Tensor:
            batch = torch.randint(len(lesson.pool), (min(self.batch_size, len(lesson.pool)),), generator=draws)
            x = lesson.pool[batch]
            way = torch.randn(x.shape, generator=draws, dtype=x.dtype)
            place = next(student.parameters()).device
            return self.weight * self.divergence(student, x.to(place), way.to(place), apart, spread)

        self.fit.descend(module, lesson, context, extra)

    def divergence(self, student: nn.Module, x: Tensor, way: Tensor, apart: Apart, unit: float = 1.0) -> Tensor:
        """How far predictions change at `radius` units in about the worst direction, found from `way`."""
        with torch.no_grad():
            predicted = student(x)
        for _ in range(self.iterations):
            near = _of_length(way, self.probe * unit).requires_grad_()
            (way,) = torch.autograd.grad(apart(predicted, student(x + near)), near)
        return apart(predicted, student(x + _of_length(way, self.radius * unit)))


def _of_length(way: Tensor, length: float) -> Tensor:
    """Each record's direction at this length; zero stays zero."""
    norms = way.flatten(1).norm(dim=1).clamp(min=1e-30)
    scaled: Tensor = way * (length / norms).reshape(-1, *(1,) * (way.dim() - 1))
    return scaled.detach()


def classes_apart(before: Tensor, after: Tensor) -> Tensor:
    """The mean Kullback-Leibler divergence of two predictions of one class of several."""
    return F.kl_div(after.log_softmax(1), before.log_softmax(1), reduction="batchmean", log_target=True)


def attributes_apart(before: Tensor, after: Tensor) -> Tensor:
    """The same for attributes that hold or not, averaged over them."""
    held, open_ = before.sigmoid(), (-before).sigmoid()
    gained, lost = (F.logsigmoid(sign * before) - F.logsigmoid(sign * after) for sign in (1.0, -1.0))
    return (held * gained + open_ * lost).mean()
