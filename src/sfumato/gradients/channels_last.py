"""Two kinds of convolution that the library gets wrong with channels last, and how they are kept from it.

With channels last, oneDNN (as it comes with torch 2.13) reads beyond the image in a convolution of one input channel that steps by
one across lines and by more along them, if there is one place in a line. What it finds there may be another client's data, or
another record's. And it crashes in some convolutions that are dilated and step by more than one along lines. So convolutions
that step like that get their images and their weights with channels first, however wide they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

CONVOLUTIONS = {F.conv2d, F.conv3d}


def misread(weight: Tensor, stride: int | Sequence[int], dilation: int | Sequence[int], groups: int) -> bool:
    """Whether a convolution is of a kind that is wrong with channels last."""
    sides = weight.dim() - 2
    steps, spread = ((n,) * sides if isinstance(n, int) else tuple(n) for n in (stride, dilation))
    beyond = weight.shape[1] == 1 and groups == 1 and sides > 1 and steps[-2] == 1
    return steps[-1] > 1 and (beyond or spread[-1] > 1)


def channels_first(value: Tensor) -> Tensor:
    """A copy that says so by its strides: of one channel, both ways count as contiguous, and nothing else copies it."""
    return value.clone(memory_format=torch.contiguous_format)


def reads_its_image(
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> bool:
    """Whether a call of a convolution, as it is, reads nothing but its image."""
    return not misread(weight, stride, dilation, groups) or (input.stride(1) != 1 and weight.stride(1) != 1)


def convolution(function: Callable[..., Tensor], input: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """conv2d or conv3d as it is called, but with channels first where only that is right."""
    if not reads_its_image(input, weight, *args, **kwargs):
        input, weight = channels_first(input), channels_first(weight)
    return function(input, weight, *args, **kwargs)
