"""Small things that several tests build."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import config
from torch import nn

from sfumato import AddNoise, Clip, FixedSize, Gaussian, Mean, Poisson, Population, Round, Sgd
from sfumato.key import Key


def dp_round(**changed: Any) -> Round:
    """A sound round, with some slots changed."""
    slots: dict[str, Any] = {
        "sample": Poisson(0.5),
        "local": Sgd(lr=0.1, epochs=2, batch_size=4),
        "client": (Clip(1.0),),
        "aggregate": Mean(over=5),
        "server": (AddNoise(Gaussian(1.0)),),
    }
    with unchecked():
        return Round(**{**slots, **changed})


@contextmanager
def unchecked() -> Iterator[None]:
    """Without the type checker of the tests, as users run: a piece of the wrong kind meets the library's own refusal."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)


def fixed_round(size: int = 3, **changed: Any) -> Round:
    """The same with a cohort of fixed size."""
    return dp_round(sample=FixedSize(size), **changed)


def made_up_population(sizes: list[int], features: int = 6, classes: int = 3, seed: int = 0) -> Population:
    """Clients with random records, some of them with few or none."""
    clients = []
    for number, size in enumerate(sizes):
        key = Key.from_seed(seed).child("client", id=number)
        x = key.child("x").normal(size, features).float()
        y = torch.from_numpy((key.child("y").integers(size) % classes).astype("int64"))
        clients.append((x, y))
    return Population.from_list(clients, name="made-up")


def linear(features: int = 6, classes: int = 3, seed: int = 0) -> nn.Module:
    """A linear model with weights from a seed."""
    module = nn.Linear(features, classes)
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(Key.from_seed(seed).child("w", n=number).normal(*parameter.shape) * 0.1)
    return module


def staircase_below(loss: float, nu: float) -> Callable[[np.ndarray], np.ndarray]:
    """The chance that scalar staircase noise of step 1 lies below a number, integrated from its density."""
    fall = math.exp(-loss)
    centre = (1 - fall) / (2 * (nu + fall * (1 - nu)))

    def below(at: np.ndarray) -> np.ndarray:
        size, step = np.abs(at), np.floor(np.abs(at))
        inside = centre * fall**step * (np.minimum(size - step, nu) + fall * np.maximum(size - step - nu, 0.0))
        return np.asarray(0.5 + np.sign(at) * ((1 - fall**step) / 2 + inside))

    return below
