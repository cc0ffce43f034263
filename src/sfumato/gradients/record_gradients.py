"""The gradients of all records of a batch, one parameter at a time, in whatever form is the cheapest.

Norms are taken in float64, whose range holds every product of two float32 numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from sfumato.pieces.norms import exact_norms, l1_norms, norms_from_above
from sfumato.update import Layout

_ROUNDING = 2.0**-24
_HUGE = 2.0**48  # an input from which on what a factor rounds off near zero could count: such a record adds nothing


@runtime_checkable
class Piece(Protocol):
    """The gradients of one parameter for all records."""

    def squares(self) -> Tensor:
        """The squared L2 norm for every record, float64 [records]."""

    def sizes(self) -> Tensor:
        """The L1 norm for every record, float64 [records]."""

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """Add the sum over records of `factor * gradient` to `total`, which has the parameter's shape."""


@dataclass(frozen=True)
class Rows:
    """Gradients that were formed, [records, ...]; a convolution's have their channels last."""

    gradients: Tensor
    kernel: tuple[int, ...] = ()

    def squares(self) -> Tensor:
        return norms_from_above(self.gradients.reshape(len(self.gradients), -1)).square()

    def sizes(self) -> Tensor:
        return l1_norms(self.gradients.reshape(len(self.gradients), -1))

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        columns = self.gradients.reshape(len(factors), -1).T
        if self.kernel:
            total.add_(_channels_first(torch.mv(columns, factors), total.shape, self.kernel))
        else:
            total.view(-1).addmv_(columns, factors)


@dataclass(frozen=True)
class Dyads:
    """Gradients `g a^T` that stay unformed, of a map that was used once: inputs [records, in], output gradients [records, out]."""

    inputs: Tensor
    outputs: Tensor

    def squares(self) -> Tensor:
        lengths = exact_norms(self.inputs)
        return torch.where(lengths < _HUGE, lengths * exact_norms(self.outputs), math.inf).square()

    def sizes(self) -> Tensor:
        lengths = l1_norms(self.inputs)
        return torch.where(lengths < _HUGE, lengths * l1_norms(self.outputs), math.inf)

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        total.addmm_((self.outputs * factors.unsqueeze(1)).T, self.inputs)


@dataclass(frozen=True)
class Outer:
    """Gradients that stay unformed: inputs [records, groups, positions, in], output gradients [..., out].

    The squared norm of `sum_t g_t a_t^T` is `sum_{s,t} (a_s . a_t)(g_s . g_t)`. The float32 sum over the positions may round
    by `_ROUNDING * positions * sum_t |a_t| |g_t|`, which is added to the norm: what is clipped by it stays within it. An L1
    norm has no such form, so for it the gradients are formed, one record at a time.
    """

    inputs: Tensor
    outputs: Tensor
    kernel: tuple[int, ...] = ()

    def squares(self) -> Tensor:
        positions = self.inputs.shape[2]
        inputs, outputs = _gram(self.inputs), _gram(self.outputs)
        norms_squared = (inputs * outputs).sum((1, 2, 3)).clamp(min=0.0)
        lengths = (inputs.diagonal(dim1=2, dim2=3) * outputs.diagonal(dim1=2, dim2=3)).sqrt().sum((1, 2))
        longest = inputs.diagonal(dim1=2, dim2=3).amax((1, 2)).sqrt()
        norms = norms_squared.sqrt() + (positions + 2) * _ROUNDING * lengths
        return torch.where(longest < _HUGE, norms, math.inf).square()

    def sizes(self) -> Tensor:
        pairs = zip(self.outputs.double(), self.inputs.double(), strict=True)
        formed = torch.stack([(g.transpose(1, 2) @ a).abs().sum() for g, a in pairs])
        lengths, heights = (part.abs().sum(3, dtype=torch.float64) for part in (self.inputs, self.outputs))
        norms = formed + (self.inputs.shape[2] + 2) * _ROUNDING * (lengths * heights).sum((1, 2))
        return torch.where(lengths.amax((1, 2)) < _HUGE, norms, math.inf)

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        scaled = self.outputs * factors.view(-1, 1, 1, 1)
        if scaled.shape[1] == 1 and not self.kernel:
            total.addmm_(scaled.flatten(0, 2).T, self.inputs.flatten(0, 2))
        else:
            summed = scaled.transpose(0, 1).flatten(1, 2).transpose(1, 2) @ self.inputs.transpose(0, 1).flatten(1, 2)
            total.add_(_channels_first(summed.flatten(), total.shape, self.kernel))


@dataclass(frozen=True)
class Scattered:
    """Gradients with few rows that are not zero: one per record and per word it holds."""

    gradients: Tensor
    record: Tensor
    word: Tensor
    records: int

    def squares(self) -> Tensor:
        squares = exact_norms(self.gradients).square()
        return squares.new_zeros(self.records).index_add_(0, self.record, squares)

    def sizes(self) -> Tensor:
        sizes = l1_norms(self.gradients)
        return sizes.new_zeros(self.records).index_add_(0, self.record, sizes)

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        total.index_add_(0, self.word, self.gradients * factors.index_select(0, self.record).unsqueeze(1))


def _gram(part: Tensor) -> Tensor:
    return part.double() @ part.double().transpose(2, 3)


def _channels_first(flat: Tensor, shape: torch.Size, kernel: tuple[int, ...]) -> Tensor:
    return flat.view(shape[0], *kernel, shape[1]).movedim(-1, 1) if kernel else flat.view(shape)


Pieces = dict[str, Piece]  # by the parameter's name


def record_norms(pieces: Pieces, x: Tensor) -> Tensor:
    """The L2 norm of the whole gradient of each of the records `x`, float64."""
    if not pieces:
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    return torch.stack([piece.squares() for piece in pieces.values()]).sum(0).sqrt()


def record_sizes(pieces: Pieces, x: Tensor) -> Tensor:
    """The L1 norm of the whole gradient of each of the records `x`, float64."""
    if not pieces:
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    return torch.stack([piece.sizes() for piece in pieces.values()]).sum(0)


def add_pieces(total: Tensor, layout: Layout, pieces: Pieces, factors: Tensor) -> None:
    """Add the sum over records of `factor * gradient` to the row `total`."""
    factors = factors.float()
    for name, view in layout.split(total).items():
        if name in pieces:
            pieces[name].add_to(view, factors)
