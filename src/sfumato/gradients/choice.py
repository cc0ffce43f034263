"""Which way to the gradients of single records is taken: the fastest that agrees with autograd on each record alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sfumato.gradients.masks import KeyedMasks
from sfumato.gradients.per_record_passes import chained, one_by_one, one_pass, one_pass_channels_last, vectorised
from sfumato.gradients.problem import Problem
from sfumato.gradients.record_gradients import Pieces, add_pieces, record_norms
from sfumato.key import Key

_PROBE = 4  # records on which a fast way must agree with the loop before it is used
_TOLERANCE = 1e-2

Way = Callable[[Problem, Tensor, Tensor, Tensor], Pieces]


@dataclass(frozen=True)
class Choice:
    """A way, and whether the module has dropout."""

    way: Way
    random: bool


def chosen(problem: Problem, row: Tensor, x: Tensor, y: Tensor) -> Choice | None:
    """The choice for records of these shapes; None if there is nothing to compare by: a later batch chooses."""
    row, x, y = _probe(row, x, y)
    if len(x) < 3:
        return None
    masks = KeyedMasks(off=True)  # masks would differ between batch sizes
    problem = replace(problem, masks=masks)
    truth = one_by_one(problem, row, x.clone(), y)  # a first layer may work in place
    norms = record_norms(truth, x)
    if not ((norms > 0.0) & norms.isfinite()).all():
        return None
    ways: tuple[Way, ...] = (one_pass_channels_last, one_pass, vectorised) if problem.layers else (vectorised,)
    ways = (chained, *ways) if problem.chain else ways
    found = next((way for way in ways if _agrees(way, truth, problem, row, x, y)), one_by_one)
    return Choice(found, masks.asked)


def _agrees(way: Way, truth: Pieces, problem: Problem, row: Tensor, x: Tensor, y: Tensor) -> bool:
    """Whether a way gives the same norms and weighted sums as the loop, in two orders."""
    if way is vectorised and any(isinstance(layer, nn.RNNBase) for layer in problem.module.modules()):
        return False  # torch batches these one by one itself, with a warning
    layout, norms = problem.layout, record_norms(truth, x)
    weights = torch.linspace(0.5, 1.0, len(x), dtype=torch.float64, device=x.device) / norms.clamp(min=1e-30)
    expected = torch.zeros(layout.dimension, device=row.device)
    add_pieces(expected, layout, truth, weights)
    every = torch.arange(len(x), device=x.device)
    for order in (every, every.flip(0)):
        try:
            pieces = way(problem, row, x[order], y[order])
        except Exception:
            return False  # vmap cannot batch it, a view cannot be taken of channels that come last
        found = torch.zeros(layout.dimension, device=row.device)
        add_pieces(found, layout, pieces, weights[order])
        if not torch.allclose(record_norms(pieces, x), norms[order], rtol=_TOLERANCE):
            return False
        pairs = zip(layout.split(found).values(), layout.split(expected).values(), strict=True)
        if not all((one - two).square().sum() <= _TOLERANCE**2 * two.square().sum() + 1e-12 for one, two in pairs):
            return False
    return True


def _probe(row: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters and a few records to compare the ways by: real numbers are made up, words are not.

    The parameters are moved a little, so that a model that begins at zero has gradients too.
    """
    key = Key.from_seed(0).child("probe")
    row = row + 0.05 * key.child("row").normal(len(row)).to(row)
    if not x.is_floating_point():
        return row, x[:_PROBE], y[:_PROBE]
    return row, key.normal(_PROBE, *x.shape[1:]).to(x), y[:1].expand(_PROBE, *y.shape[1:]).contiguous()
