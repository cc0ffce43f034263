"""Optimizers: from parameters, state and an update to new parameters. Free on anything that is paid for.

The server steps along the aggregate; private local training steps along the negative noisy gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch

from sfumato.claim import Claim
from sfumato.errors import BadValue, nearest
from sfumato.pieces.protocol import State, StepRule
from sfumato.pieces.wrapper import forward_hooks
from sfumato.shapes import Row


def _positive(name: str, lr: float) -> None:
    if not lr > 0.0:
        raise BadValue(f"{name}(lr={lr}): the learning rate is positive; 1.0 takes the mean update as it is.")


@dataclass(frozen=True)
class GradientDescent(StepRule):
    """params + lr * update."""

    lr: float = 1.0

    def __post_init__(self) -> None:
        _positive("GradientDescent", self.lr)

    def step(self, params: Row, state: State, update: Row) -> tuple[Row, State]:
        return torch.add(params, update, alpha=self.lr), state

    def carry(self, claim: Claim) -> Claim:
        return claim


@dataclass(frozen=True)
class Momentum(StepRule):
    """velocity = momentum * velocity + update; params + lr * velocity (FedAvgM, Hsu et al. 2019)."""

    lr: float = 1.0
    momentum: float = 0.9

    def __post_init__(self) -> None:
        _positive("Momentum", self.lr)
        if not 0.0 <= self.momentum < 1.0:
            raise BadValue(f"Momentum(momentum={self.momentum}): at least 0 and below 1.")

    def start(self, params: Row) -> State:
        return {"velocity": torch.zeros_like(params)}

    def step(self, params: Row, state: State, update: Row) -> tuple[Row, State]:
        velocity = self.momentum * state["velocity"] + update
        return params + self.lr * velocity, {"velocity": velocity}

    def carry(self, claim: Claim) -> Claim:
        return claim


@dataclass(frozen=True)
class Adam(StepRule):
    """Adam on the update (FedAdam, Reddi et al. 2021), with bias correction as in Kingma and Ba."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        _positive("Adam", self.lr)
        if not (0.0 <= self.beta1 < 1.0 and 0.0 <= self.beta2 < 1.0 and self.epsilon > 0.0):
            raise BadValue(f"{self}: both betas are at least 0 and below 1, and epsilon is positive.")

    def start(self, params: Row) -> State:
        return {
            "first": torch.zeros_like(params),
            "second": torch.zeros_like(params),
            "count": torch.zeros((), dtype=torch.int64, device=params.device),
        }

    def step(self, params: Row, state: State, update: Row) -> tuple[Row, State]:
        count = state["count"] + 1
        first = self.beta1 * state["first"] + (1.0 - self.beta1) * update
        second = self.beta2 * state["second"] + (1.0 - self.beta2) * update.square()
        times = int(count)
        scale = (second / (1.0 - self.beta2**times)).sqrt() + self.epsilon
        params = params + self.lr * (first / (1.0 - self.beta1**times)) / scale
        return params, {"first": first, "second": second, "count": count}

    def carry(self, claim: Claim) -> Claim:
        return claim


@dataclass(frozen=True)
@forward_hooks
class Averaged(StepRule):
    """Another optimizer whose iterates are averaged: training goes on from the last one, and the average is reported.

    average = decay * average + (1 - decay) * params, over 1 - decay^count, so that the start counts for nothing (Polyak and
    Juditsky 1992; McMahan et al. 2018 use it with DP-FedAvg). Free: it reads released parameters only. Decay 0 reports the
    last iterate.
    """

    inner: StepRule = field(default_factory=GradientDescent)
    decay: float = 0.9

    def __post_init__(self) -> None:
        if not 0.0 <= self.decay < 1.0:
            raise BadValue(f"Averaged(decay={self.decay}): at least 0 and below 1, e.g. 0.9 for about ten rounds.")
        if isinstance(self.inner, Averaged):
            raise BadValue("Averaged(Averaged(...)): an average of averages. Wrap the optimizer once.")

    def start(self, params: Row) -> State:
        nothing = {
            "average": torch.zeros_like(params),
            "count": torch.zeros((), dtype=torch.int64, device=params.device),
        }
        inner = self.inner.start(params)
        return {**{f"inner.{name}": value for name, value in inner.items()}, **nothing}

    def step(self, params: Row, state: State, update: Row) -> tuple[Row, State]:
        inner = {name.removeprefix("inner."): value for name, value in state.items() if name.startswith("inner.")}
        params, inner = self.inner.step(params, inner, update)
        average = self.decay * state["average"] + (1.0 - self.decay) * params
        own = {"average": average, "count": state["count"] + 1}
        return params, {**{f"inner.{name}": value for name, value in inner.items()}, **own}

    def report(self, params: Row, state: State) -> Row:
        """The average; before the first step, the parameters."""
        count = int(state["count"])
        return state["average"] / (1.0 - self.decay**count) if count else params

    def carry(self, claim: Claim) -> Claim:
        """Post-processing; the inner one may object."""
        return self.inner.carry(claim)


Named: TypeAlias = GradientDescent | Momentum | Adam


def optimizer_named(name: str, lr: float) -> Named:
    """The optimizer of that name: sgd, momentum or adam."""
    known: dict[str, type[Named]] = {"sgd": GradientDescent, "momentum": Momentum, "adam": Adam}
    if name not in known:
        raise BadValue(f"optimizer={name!r}: there is no such optimizer. {nearest(name, known)}")
    return known[name](lr=lr)


def local_optimizer(name: str, lr: float) -> Named:
    """The same for the steps of a client: Adam with the constants of Kingma and Ba, not those of FedAdam."""
    chosen = optimizer_named(name, lr)
    return replace(chosen, beta2=0.999, epsilon=1e-8) if isinstance(chosen, Adam) else chosen
