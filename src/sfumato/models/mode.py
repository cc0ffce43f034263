"""Which parts of a model are in training while it trains: those that train. One rule, for every path that trains."""

from __future__ import annotations

from torch import nn


def training_mode(module: nn.Module) -> nn.Module:
    """The module, in training mode but for its frozen parts, which are in evaluation; it is given back as it came.

    A part is frozen if it has parameters and trains none of them: its own dropout does not act, and a BatchNorm in it normalises
    by the statistics that it came with. They are as public as the frozen weights, and no record changes them.

    >>> model = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.Dropout()).requires_grad_(False), nn.Linear(3, 2))
    >>> [part.training for part in training_mode(model)]
    [False, True]
    """
    module.train()
    for part in module.modules():
        trains = [parameter.requires_grad for parameter in part.parameters()]
        if trains and not any(trains):
            part.eval()
    return module
