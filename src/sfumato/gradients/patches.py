"""A convolution as a product: what lies under the kernel at every place, one row for each."""

from __future__ import annotations

import math
from typing import TypeAlias

from torch import Tensor, nn
from torch.nn import functional

Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d


def patches(layer: Convolution, image: Tensor) -> Tensor:
    """The patches of an image, copied out of it: [records, groups, places, kernel * channels of the group]."""
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
    return flat.transpose(2, 3) if along_places else flat
