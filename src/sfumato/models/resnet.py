"""ResNet-18 for small pictures, with GroupNorm: BatchNorm would keep statistics of the records beside the row."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

_GROUPS = 32
_WIDTHS = (64, 128, 256, 512)


class ResidualBlock(nn.Module):
    """Two convolutions, added to their input (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(_GROUPS, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(_GROUPS, outputs)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(_GROUPS, outputs))
            if stride > 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both ways."""
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(inner)) + self.shortcut(x))


def resnet_18(channels: int, outputs: int) -> nn.Module:
    """Four stages of two blocks, of 64 to 512 channels, after a 3x3 convolution without pooling.

    >>> sum(parameter.numel() for parameter in resnet_18(3, 10).parameters())
    11173962
    """
    layers: list[nn.Module] = [
        nn.Conv2d(channels, _WIDTHS[0], 3, padding=1, bias=False),
        nn.GroupNorm(_GROUPS, _WIDTHS[0]),
        nn.ReLU(),
    ]
    width = _WIDTHS[0]
    for stage, wider in enumerate(_WIDTHS):
        layers += [ResidualBlock(width, wider, 2 if stage else 1), ResidualBlock(wider, wider, 1)]
        width = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs))
