"""ResNet-18 for small pictures, with GroupNorm: BatchNorm would keep statistics of the records beside the row."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

_GROUPS = 32
_STAGES = 4


class ResidualBlock(nn.Module):
    """Two convolutions, added to their input (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = _norm(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = _norm(outputs)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(outputs))
            if stride > 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(inner)) + self.shortcut(x))


def resnet_18(channels: int, outputs: int, width: int = 64) -> nn.Module:
    """A 3x3 convolution without pooling, then four stages of two blocks, each twice as wide as the one before.

    >>> sum(parameter.numel() for parameter in resnet_18(3, 10).parameters())
    11173962
    """
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False), _norm(width), nn.ReLU()]
    for stage in range(_STAGES):
        wider = width if stage == 0 else 2 * width
        layers += [ResidualBlock(width, wider, 2 if stage else 1), ResidualBlock(wider, wider, 1)]
        width = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs))


def _norm(channels: int) -> nn.Module:
    return nn.GroupNorm(min(_GROUPS, channels), channels)
