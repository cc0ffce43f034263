"""Ready maps of pictures [n, channels, height, width] that need no download.

What a record becomes must not depend on the records beside it: if one record changed the features of others by a rounding, it
could change whose neighbours they are, and the stated sensitivity of votes would be false. Kernels of a library round as the
shape of the batch and a record's place in it suggest, so nothing here sums by them. Either an operation is one correctly
rounded step for each number (sum, product, quotient, root, comparison), with sums as trees in a fixed order; or all numbers are
whole and below 2^24, so that float32 adds them exactly in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from sfumato.data.record_map import batched
from sfumato.errors import BadValue, DataError
from sfumato.features.threads import on_cpu
from sfumato.key import Key

_EXACT = 2**24  # whole numbers up to here are float32 numbers


def tree_sum(x: Tensor) -> Tensor:
    """The sum over the last dimension, by halves: the same order of additions for every record, whatever the batch.

    >>> tree_sum(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    tensor([ 6., 15.])
    """
    while (count := x.shape[-1]) > 1:
        half = count // 2
        x = torch.cat([x[..., :half] + x[..., half : 2 * half], x[..., 2 * half :]], dim=-1)
    return x[..., 0]


def require_pictures(x: Tensor, step: object) -> Tensor:
    """`x` if its records are pictures."""
    if x.ndim != 4:
        raise DataError(f"{step}: records of shape {tuple(x.shape[1:])} are no pictures (channels, height, width).")
    return x


@batched
@dataclass(frozen=True)
class Pixels:
    """A record's numbers as one vector."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(1)


@batched
@dataclass(frozen=True)
class UnitNorm:
    """Each record over its L2 norm, times `norm`; numbers that are not finite count as 0, and a record of zeros stays so."""

    norm: int = 1

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.flatten(1).double()
        flat = torch.where(flat.isfinite(), flat, 0.0)
        norm = tree_sum(flat * flat).sqrt()[:, None]
        return torch.where(norm > 0, flat / norm * self.norm, 0.0).to(x.dtype).view_as(x)


@batched
@dataclass(frozen=True)
class Grey:
    """Red, green and blue weighed as in ITU-R BT.601; what has one channel stays as it is."""

    def __call__(self, x: Tensor) -> Tensor:
        channels = require_pictures(x, self).shape[1]
        if channels not in (1, 3):
            raise DataError(f"{self}: pictures of {channels} channels are neither grey nor red, green and blue.")
        return x if channels == 1 else x[:, 0:1] * 0.299 + x[:, 1:2] * 0.587 + x[:, 2:3] * 0.114


@batched
@dataclass(frozen=True)
class Box:
    """Pictures without a margin of so many pixels; MNIST's digits lie in the inner 20 of 28."""

    margin: int = 4

    def __call__(self, x: Tensor) -> Tensor:
        height, width = require_pictures(x, self).shape[2:]
        if 2 * self.margin >= min(height, width):
            raise DataError(f"{self}: nothing would be left of pictures of {height}x{width} pixels.")
        return x[..., self.margin : height - self.margin, self.margin : width - self.margin]


@batched
@dataclass(frozen=True)
class Resize:
    """Pictures of `height` and `width`, bilinear with antialiasing: the weights of torch.nn.functional.interpolate."""

    height: int
    width: int

    @on_cpu
    def __call__(self, x: Tensor) -> Tensor:
        found = tuple(require_pictures(x, self).shape[2:])
        if found == (self.height, self.width):
            return x
        return _along(_along(x, self.width).transpose(2, 3), self.height).transpose(2, 3).contiguous()


def _along(x: Tensor, size: int) -> Tensor:
    """The last dimension brought to a size: each number is a weighed sum of a few, added in their order."""
    places, weights = _taps(x.shape[-1], size)
    found = x[..., places[0]] * weights[0].to(x.dtype)
    for place, weight in zip(places[1:], weights[1:], strict=True):
        found = found + x[..., place] * weight.to(x.dtype)
    return found


@cache
def _taps(there: int, size: int) -> tuple[Tensor, Tensor]:
    """Where the terms of each number stand and what they weigh, [terms, size] each: a triangle as wide as the step."""
    step = there / size
    reach = max(step, 1.0)
    centre = step * (torch.arange(size, dtype=torch.float64) + 0.5)
    first = (centre - reach + 0.5).floor().clamp(min=0).long()
    place = first + torch.arange(math.ceil(2 * reach) + 1)[:, None]
    weight = (1.0 - (place + 0.5 - centre).abs() / reach).clamp(min=0.0) * (place < there)
    return place.clamp(max=there - 1), weight / weight.sum(0)


@batched
@dataclass(frozen=True)
class Hog:
    """Histograms of directions of the gradient in cells of `cell` pixels, made comparable in blocks of 2x2 cells; unit norm.

    A gradient votes for the directions within one step of its own, the more the nearer (after Dalal and Triggs 2005).
    """

    cell: int = 4
    directions: int = 9

    def __call__(self, x: Tensor) -> Tensor:
        height, width = (size // self.cell for size in require_pictures(x, self).shape[2:])
        if min(height, width) < 2:
            raise DataError(f"{self}: pictures of {tuple(x.shape[2:])} pixels have not 2x2 cells. Use hog:2, say.")
        x = F.pad(x, (1, 1, 1, 1), mode="replicate")
        right, down = x[..., 1:-1, 2:] - x[..., 1:-1, :-2], x[..., 2:, 1:-1] - x[..., :-2, 1:-1]
        least = (right * right + down * down).sqrt() * math.cos(math.pi / self.directions)
        angles = [math.pi * number / self.directions for number in range(self.directions)]
        votes = [((right * math.cos(a) + down * math.sin(a)).abs() - least).clamp(min=0.0) for a in angles]
        bins = tree_sum(torch.stack(votes, dim=1).movedim(2, -1))  # [n, directions, height, width]: channels added up
        bins = bins[..., : height * self.cell, : width * self.cell]
        bins = bins.reshape(*bins.shape[:2], height, self.cell, width, self.cell)
        cells = tree_sum(tree_sum(bins).movedim(3, -1))
        corners = [cells[..., i : height - 1 + i, j : width - 1 + j] for i in (0, 1) for j in (0, 1)]
        blocks = torch.cat(corners, dim=1).movedim(1, -1)
        blocks = blocks / (tree_sum(blocks * blocks).sqrt() + 0.01)[..., None]
        return UnitNorm()(blocks.flatten(1))


@batched
@dataclass(frozen=True)
class RandomConv:
    """`width` random filters of 5x5, what passes a threshold either way added up in 3x3 fields of the picture; unit norm.

    The filters come from a public seed (Coates and Ng 2012 have shown that random ones go far). Pixels are brought to whole
    numbers, 255 for 1, cut off beyond -1 and 1, and filters to whole numbers so small that no sum passes 2^24: exact in any order.
    """

    width: int = 64
    seed: int = 0

    @on_cpu
    def __call__(self, x: Tensor) -> Tensor:
        _, channels, height, rest = require_pictures(x, self).shape
        filters, threshold = _filters(self, channels, math.ceil(height / 3) * math.ceil(rest / 3))
        whole = (torch.where(x.isnan(), 0.0, x.float()).clamp(-1.0, 1.0) * 255.0).round()
        found = filters @ F.unfold(whole, 5, padding=2)
        passed = found.abs_().sub_(threshold).clamp_(min=0.0)
        return UnitNorm()((passed @ _fields(height, rest)).flatten(1))


@cache
def _filters(step: RandomConv, channels: int, pixels: int) -> tuple[Tensor, float]:
    """Filters without mean, of unit norm times a constant, as whole numbers; and the threshold, a quarter of that constant.

    A sum over `pixels` has at most 255 times the numbers of a filter, by absolute value, for each.
    """
    taps = 25 * channels
    drawn = Key.from_seed(step.seed).child("random-conv", channels=channels).normal(step.width, taps)
    drawn = drawn - drawn.mean(1, keepdim=True)
    drawn = drawn / drawn.norm(dim=1, keepdim=True)
    room = (_EXACT / (255 * pixels) - taps / 2) / float(drawn.abs().sum(1).max())
    if room < 8:
        raise DataError(f"{step}: these pictures are too large for exact sums. Put resize:64 or grey before it.")
    scale = min(256, math.floor(room))
    return (drawn * scale).round().float(), float(round(0.25 * 255 * scale))


@cache
def _fields(height: int, width: int) -> Tensor:
    """[pixels, 9]: which pixels are added up in which field."""
    row, column = torch.arange(height) * 3 // height, torch.arange(width) * 3 // width
    return F.one_hot((3 * row[:, None] + column).flatten(), 9).float()


def whole(word: str, number: str, default: int | None) -> int:
    """The number of a step's word, such as 16 of `resize:16`."""
    if not number and default is not None:
        return default
    if not number.isdecimal() or int(number) < 1:
        raise BadValue(f"features {word!r}: {number or 'nothing'} is no whole number above 0. Write {word}:16, say.")
    return int(number)
