"""The loss around a model along two random directions, each filter as long as the model's own (Li et al. 2018)."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from sfumato.data.population import Records
from sfumato.key import Key
from sfumato.objective import Objective, evaluate
from sfumato.report.studies import Landscape


def direction(module: nn.Module, key: Key) -> dict[str, torch.Tensor]:
    """A normal direction whose filters (rows of a weight) have the norms of the module's; none along biases and norms."""
    found = {}
    for name, parameter in module.named_parameters():
        drawn = key.child(name).normal(*parameter.shape).to(parameter.dtype)
        if parameter.dim() < 2:
            found[name] = torch.zeros_like(drawn)
            continue
        across = tuple(range(1, parameter.dim()))
        own, new = (value.square().sum(across, keepdim=True).sqrt() for value in (parameter.detach(), drawn))
        found[name] = drawn * own / (new + 1e-12)
    return found


def landscape(
    module: nn.Module, records: Records, objective: Objective, key: Key, points: int = 21, reach: float = 1.0
) -> Landscape:
    """The mean loss on records at points x points places, up to `reach` times each direction."""
    first, second = (direction(module, key.child("direction", number=number)) for number in range(2))
    steps = np.linspace(-reach, reach, points)
    moved = copy.deepcopy(module)
    start = {name: value.detach().clone() for name, value in module.named_parameters()}
    losses = []
    for a in steps:
        line = []
        for b in steps:
            with torch.no_grad():
                for name, parameter in moved.named_parameters():
                    parameter.copy_(start[name] + float(a) * first[name] + float(b) * second[name])
            line.append(evaluate(moved, records, objective)["loss"])
        losses.append(tuple(line))
    return Landscape(tuple(map(float, steps)), tuple(losses))
