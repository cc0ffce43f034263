"""Very many steps, each of which loses very little: composed on ever coarser grids.

On one grid every step pays for its rounding, and where a loss is usually far below the grid's step that is more than the
loss itself. So a step is split in two pairs, the usual loss and the rare jumps. Whoever sees whether a step jumped, how far,
and in every case a loss drawn from the usual ones, sees at least what the step shows, so the two pairs together dominate it:
with p and q the chance of no jump in both worlds and c = log(p/q), the usual pair has the law of the step given no jump,
and the other pair says "no jump" with loss 0, or a jump with its loss minus c (both are shifted by c, in opposite directions).

The usual losses start on a fine grid and are composed a few dozen times; then, eight times as spread out, they move to a grid
that is eight times coarser, by connecting the dots; and so on to the grid of the rest. Masses are only ever rounded up, what
lies above a window counts as infinite, and what lies below it re-enters above.
"""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.fft import next_fast_len

from sfumato.account.loss_grid import Grid, Loss, Times, Together, connected, grid, inverted
from sfumato.account.noises import ROUNDING, Array
from sfumato.account.pairs import Pair

_COARSER = 8  # from one grid to the next
_TOGETHER = _COARSER**2  # steps that are that many times as spread out
_FINE = 5e-4  # how much of its variance rounding may add to a usual loss
_JUMPS = 2e-4  # the same for jumps
_OFTEN = 1e-4  # the largest chance of a jump, each of which costs one step more
_LARGEST = 1 << 21


class _Split(NamedTuple):
    edge: float  # beyond it a loss is a jump
    levels: int  # how many finer grids there are


def in_blocks(pair: Pair, times: int, step: float, spacing: float, largest: float, rare: float) -> Loss | None:
    """`times` times the pair on multiples of `step`, with a chance of e^`rare` for each step to count as infinite.

    None where a finer grid would gain nothing or would be too large.
    """
    split = _split(grid(pair, 0.0, spacing, largest), step, times)
    while split is not None and split.levels > 0:
        found = _composed(pair, split, times, step, spacing, largest, rare)
        if found is not None:
            return found
        split = _Split(split.edge, split.levels - 1)
    return None


def _composed(
    pair: Pair, split: _Split, times: int, step: float, spacing: float, largest: float, rare: float
) -> Loss | None:
    lattice = step / _COARSER**split.levels
    law, log_p, log_q = _usual(pair, split.edge, lattice, spacing)
    seldom, at_least = float(np.exp(log_p).sum()), float(np.exp(log_q).sum())
    offset = math.log1p(-seldom) - math.log1p(-at_least) - 4 * ROUNDING
    counts, blocks = _counts(times, split.levels)
    for count in counts:
        dense = _power(law, lattice, count, rare)
        if dense is None:
            return None
        lattice *= _COARSER
        law = _coarser(*dense, lattice)
    jumps = _jumps(pair, split.edge, offset, math.log1p(-seldom), step, spacing, largest)
    return Together([Times(law, blocks), Times(jumps, blocks * math.prod(counts))])


def _split(rough: Grid, step: float, times: int) -> _Split | None:
    """Jumps are so rare that the coarse grid does not hurt them, and the fine grid so fine that it does not hurt the rest."""
    order = np.argsort(-np.abs(rough.losses))
    size, mass = np.abs(rough.losses)[order], np.exp(rough.log_mass)[order]
    chance, moment = np.cumsum(mass), np.cumsum(mass * size)
    usual = np.cumsum((mass * size**2)[::-1])[::-1]
    ok = (chance <= _OFTEN) & (moment * step <= _JUMPS * np.append(usual[1:], 0.0))
    if not ok.any():
        return None
    last = int(np.nonzero(ok)[0][-1]) + 1
    fine = _FINE * float(usual[last]) / float((mass * size)[last:].sum())
    levels = min(math.ceil(math.log(step / fine, _COARSER)), int(math.log(times, _TOGETHER)))
    return _Split(math.ceil(float(size[last]) / step) * step, levels)


def _usual(pair: Pair, edge: float, lattice: float, spacing: float) -> tuple[Grid, Array, Array]:
    """The law of the loss given no jump, and the log-chance of a jump down and up: of P from above, of Q from below."""
    losses = pair.losses(spacing)
    most = round(edge / lattice)
    index = np.ceil(np.abs(losses[np.abs(losses) < edge]) / lattice)
    index = np.unique(np.concatenate([index[index < most], [0.0, most]]))
    index = np.concatenate([-index[:0:-1], index])
    cuts = index * lattice
    found = pair.cells(cuts)
    ends = np.array([0, -1])
    log_p, log_q = (found.log_p + found.error)[ends], (found.log_q - found.error)[ends]
    usual = math.log1p(-float(np.exp(log_p).sum()))
    low, high = connected(found, slice(1, -1), cuts[:-1], cuts[1:])
    mass = np.logaddexp(np.append(low, -np.inf), np.append(-np.inf, high)) - usual
    return _grid(lattice, index, mass, 0.0), log_p, log_q


def _jumps(pair: Pair, edge: float, offset: float, usual: float, step: float, spacing: float, largest: float) -> Grid:
    """No jump, or a jump with its loss minus `offset`."""
    losses = pair.losses(spacing)
    losses = losses[(np.abs(losses) > edge) & (losses <= largest)]
    up = np.unique(np.ceil((losses[losses > 0] - offset) / step))
    down = np.unique(np.floor((losses[losses < 0] - offset) / step))
    up, down = up[up * step + offset > edge], down[down * step + offset < -edge]
    above = np.append(edge, up * step + offset)
    found = pair.cells(np.concatenate([-above[::-1], [0.0], above]))
    upper = np.append(math.floor((edge - offset) / step), up)
    rises = connected(found, slice(-len(above), -1), upper[:-1] * step + offset, upper[1:] * step + offset)
    infinite = float(np.exp(found.log_p[-1] + found.error[-1]))
    below = np.append(down * step + offset, -edge)
    found = pair.cells(np.concatenate([below, [0.0], -below[::-1]]))
    lower = np.append(down, math.ceil((-edge - offset) / step))
    falls = connected(found, slice(1, len(below)), lower[:-1] * step + offset, lower[1:] * step + offset)
    index = np.concatenate([[0.0], upper[:-1], upper[1:], lower[:-1], lower[1:], lower[:1]])
    mass = np.concatenate([[usual], *rises, *falls, found.log_p[:1] + found.error[:1]])
    where, which = np.unique(index, return_inverse=True)
    total = np.bincount(which, weights=np.exp(mass))
    with np.errstate(divide="ignore"):
        return _grid(step, where, np.log(total) + 8 * ROUNDING, infinite)


def _counts(times: int, levels: int) -> tuple[list[int], int]:
    """How many are composed on each grid, and how many blocks that makes; together at least `times`, and hardly more."""
    usual = [_TOGETHER] * max(levels - 2, 0)
    some = product(range(_TOGETHER // 2, _TOGETHER + 1), repeat=min(levels, 2))
    block = {math.prod(counts) * math.prod(usual): [*counts, *usual] for counts in some}
    size = min(block, key=lambda size: -(-times // size) * size)
    return block[size], -(-times // size)


def _power(law: Grid, lattice: float, count: int, rare: float) -> tuple[int, Array, float] | None:
    """The law of `count` losses: the first place on the grid, the masses from there on, and what counts as infinite."""
    total = Times(law, count)
    cumulant, _, variance = total.moments(0.0)
    most = float(np.abs(law.losses).max())
    away = np.geomspace(min(0.5 / most, 1 / math.sqrt(variance)), 16 / math.sqrt(variance), 16)
    above, below = (total.cumulants(way * away) - cumulant for way in (1, -1))
    wanted = rare + math.log(count)
    high, low = float(np.min((above - wanted) / away)), float(np.max((wanted - below) / away))
    first = math.floor(low / lattice) - 1
    size = next_fast_len(math.ceil(high / lattice) + 2 - first, real=True)
    if size > _LARGEST:
        return None
    mass, lost = inverted(total, 0.0, first, size, together=True)
    mass[-1] += lost  # wherever rounding took mass from, it comes back at the largest loss
    return first, mass * math.exp(cumulant) * (1 + 8 * ROUNDING), math.exp(wanted) + total.infinite


def _coarser(first: int, mass: Array, infinite: float, lattice: float) -> Grid:
    """The law on a grid that is `_COARSER` times coarser: each mass moves to the two places around it, P and Q kept."""
    start = first // _COARSER
    padded = np.zeros(-(-(len(mass) + first - start * _COARSER) // _COARSER) * _COARSER)
    padded[first - start * _COARSER :][: len(mass)] = mass
    share = np.expm1(-np.arange(_COARSER) * (lattice / _COARSER)) / math.expm1(-lattice) * (1 + 16 * ROUNDING)
    rows = padded.reshape(-1, _COARSER)
    moved = np.append(rows @ (1 - share), 0.0)
    moved[1:] += rows @ share
    index = start + np.arange(len(moved))
    with np.errstate(divide="ignore"):
        return _grid(lattice, index.astype(float), np.log(moved) + 16 * ROUNDING, infinite)


def _grid(step: float, index: Array, log_mass: Array, infinite: float) -> Grid:
    kept = log_mass > -np.inf
    losses, log_mass = (index * step)[kept], log_mass[kept]
    return Grid(losses, index[kept].astype(np.int64), log_mass, losses, log_mass, infinite)
