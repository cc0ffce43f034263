"""How a student learns from labelled public records: in closed form, or by steps. All of it is post-processing."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.claim import text
from sfumato.errors import BadValue
from sfumato.objective import Objective
from sfumato.pieces.context import StepContext
from sfumato.pieces.optimizer import local_optimizer


@dataclass(frozen=True)
class Lesson:
    """Public records with targets and weights that come from released votes, and the inputs of the whole public pool."""

    x: Tensor
    y: Tensor
    weights: Tensor
    pool: Tensor


Extra: TypeAlias = Callable[[nn.Module], Tensor]


@runtime_checkable
class Learner(Protocol):
    """Trains the student."""

    @abstractmethod
    def teach(self, module: nn.Module, lesson: Lesson, context: StepContext) -> None:
        """Change the module's trainable parameters. Random numbers come from `context.key` alone."""

    def check(self, module: nn.Module, objective: Objective, pool: Tensor) -> None:
        """Refuse a module, an objective or records before anything is spent (default: take any)."""
        return


@dataclass(frozen=True)
class Ridge(Learner):
    """Weighted ridge regression on the labels, in closed form, written into a linear module.

    Inputs are standardised by means and deviations of the public pool (a deviation is no less than a hundredth of the mean one)
    and divided by the root of their number; targets are those of one class against the rest, without their mean. Nothing
    is left of the parameters before.
    """

    strength: float = 0.3

    def __post_init__(self) -> None:
        if not (self.strength > 0.0 and math.isfinite(self.strength)):
            raise BadValue(f"Ridge(strength={self.strength}): the strength is positive, e.g. 0.3.")

    def check(self, module: nn.Module, objective: Objective, pool: Tensor) -> None:
        self._linear(module, pool)

    def _linear(self, module: nn.Module, pool: Tensor) -> nn.Linear:
        """The only layer that has parameters, right behind the inputs."""
        parts = [part for part in module.modules() if not isinstance(part, nn.Sequential | nn.Flatten | nn.Identity)]
        inputs = math.prod(pool.shape[1:])
        layer = parts[0] if len(parts) == 1 else None
        if isinstance(layer, nn.Linear) and layer.in_features == inputs and layer.bias is not None:
            return layer
        raise BadValue(
            f"{text(self)} solves for one linear layer with a bias from {inputs} inputs, and {type(module).__name__} is no such "
            "module. Use the model logistic, or the student Fit."
        )

    def teach(self, module: nn.Module, lesson: Lesson, context: StepContext) -> None:
        layer = self._linear(module, lesson.pool)
        pool, x = (part.flatten(1).double() for part in (lesson.pool, lesson.x))
        spread = pool.std(dim=0, correction=0)
        middle, scale = pool.mean(dim=0), (spread + 0.01 * spread.mean() + 1e-9) * math.sqrt(pool.shape[1])
        inputs = torch.cat([(x - middle) / scale, x.new_ones(len(x), 1)], dim=1)
        if lesson.y.is_floating_point():
            targets = lesson.y.double() - 0.5
        else:
            targets = F.one_hot(lesson.y, layer.out_features).double() - 1.0 / layer.out_features
        weighted = inputs.T * lesson.weights.double()
        ridge = self.strength * torch.eye(len(weighted), dtype=weighted.dtype, device=weighted.device)
        solved = torch.linalg.solve(weighted @ inputs + ridge, weighted @ targets)
        slopes = solved[:-1] / scale[:, None]
        with torch.no_grad():
            layer.weight.copy_(slopes.T)
            layer.bias.copy_(solved[-1] - middle @ slopes)


@dataclass(frozen=True)
class Fit(Learner):
    """Steps on batches of labelled records, by the objective's loss times the record's weight over the mean weight.

    It goes on from the parameters of the round before. Dropout is off.
    """

    steps: int = 300
    lr: float = 2e-3
    batch_size: int = 64
    optimizer: str = "adam"

    def __post_init__(self) -> None:
        local_optimizer(self.optimizer, self.lr)
        if self.steps < 1 or self.batch_size < 1:
            raise BadValue(f"{text(self)}: steps and batch_size are at least 1.")

    def teach(self, module: nn.Module, lesson: Lesson, context: StepContext) -> None:
        self.descend(module, lesson, context)

    def descend(self, module: nn.Module, lesson: Lesson, context: StepContext, extra: Extra | None = None) -> None:
        """The steps, by the loss and something `extra` that depends on the module."""
        module.eval()
        named = dict(module.named_parameters())
        parameters = [named[name] for name in context.layout.names]
        row, rule = context.layout.row(module), local_optimizer(self.optimizer, self.lr)
        state, draws = rule.start(row), context.key.child("batches").generator()
        weights = lesson.weights / lesson.weights.mean()
        for _ in range(self.steps):
            batch = torch.randint(len(lesson.x), (min(self.batch_size, len(lesson.x)),), generator=draws)
            with torch.enable_grad():
                x, y, weight = (part[batch].to(row.device) for part in (lesson.x, lesson.y, weights))
                loss = (context.objective.loss(module(x), y) * weight).mean()
                found = torch.autograd.grad(loss if extra is None else loss + extra(module), parameters)
            row, state = rule.step(row, state, -torch.cat([part.reshape(-1) for part in found]))
            context.layout.write(row, module)
