"""A convolution as a product: what lies under the kernel at every place, one row for each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
_FEW = (
    2**21
)  # operations per record up to which a product is as fast as the library's convolution, which takes time to begin


@dataclass(frozen=True)
class Patches:
    """An image and its patches: columns [records, groups, places, kernel * channels of the group]."""

    image: Tensor
    columns: Tensor
    places: tuple[int, ...]

    @staticmethod
    def of(layer: Convolution, image: Tensor) -> Patches:
        """Copy the patches out of an image."""
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        padding = layer._reversed_padding_repeated_twice
        a = functional.pad(image, padding, mode) if any(padding) else image
        inside = a.shape[1] // layer.groups
        steps = a.stride()[2:]
        reach = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        counts = [(size - r - 1) // s + 1 for size, r, s in zip(a.shape[2:], reach, layer.stride, strict=True)]
        records = ((len(a), layer.groups), (a.stride(0), inside * a.stride(1)))
        places = (counts, [step * s for step, s in zip(steps, layer.stride, strict=True)])
        patch = (
            (*layer.kernel_size, inside),
            (*(step * d for step, d in zip(steps, layer.dilation, strict=True)), a.stride(1)),
        )
        # Copy with the longer run of neighbours in memory innermost: channels (and columns) of a patch, or places in a line.
        channels_run = inside * layer.kernel_size[-1] if a.stride(1) == 1 else 1
        along_places = counts[-1] > channels_run
        first, second = (patch, places) if along_places else (places, patch)
        strided = a.as_strided((*records[0], *first[0], *second[0]), (*records[1], *first[1], *second[1]))
        flat = strided.reshape(len(a), layer.groups, math.prod(first[0]), math.prod(second[0]))
        return Patches(image, flat.transpose(2, 3) if along_places else flat, tuple(counts))

    def convolved(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with one group: [records, out, *places], its channels last."""
        rows = weight.movedim(1, -1).reshape(len(weight), -1).T
        columns = self.columns[:, 0]
        y = (
            torch.matmul(columns, rows)
            if bias is None
            else torch.baddbmm(bias, columns, rows.expand(len(columns), -1, -1))
        )
        return y.view(len(y), *self.places, -1).movedim(-1, 1)


def small(layer: Convolution, x: Tensor) -> bool:
    """Whether a convolution with one group has so little to do that the product is the faster way.

    How many records there are does not matter: a record more must not change how the others are computed.
    """
    return layer.groups == 1 and operations(layer, math.prod(x.shape[2:])) < _FEW


def operations(layer: Convolution, places: float) -> float:
    """What a convolution does for one record that has so many places; roughly, as if edges were like the middle."""
    return 2.0 * places / math.prod(layer.stride) * layer.weight.numel()
