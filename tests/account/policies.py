"""The best that anyone can do who chooses rounds, and when to stop, after every output: exact, but for a grid that rounds down.

A step has the loss log(1 - rate + rate e^t) of noise `ratio` at a rate, t the loss of a Gaussian; its distribution is put on a grid
with every loss rounded down. What a policy attains where it stops is E (1 - e^(printed - loss))+, which rises with the loss, so
the value found by backward induction is never more than what is really attained. Nothing here is shared with the accountants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import ndtr

Real = NDArray[np.float64]
Counts = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A round: Gaussian noise of this ratio, drawn at a rate; `backward` under the neighbour without the unit."""

    ratio: float
    rate: float = 1.0
    backward: bool = False

    def losses(self, width: float) -> tuple[int, Real]:
        """The lowest loss in widths of the grid, and the probabilities from there on."""
        shift = 1 / self.ratio
        far = self._loss(np.array([-9.0, shift + 9.0]), shift)
        low, high = sorted((far * (-1 if self.backward else 1)).tolist())
        first, last = int(np.floor(low / width)), int(np.ceil(high / width))
        edges = width * np.arange(first, last + 1)
        edges = edges if not self.backward else -edges
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = (np.expm1(edges) + self.rate) / self.rate
            at = np.where(inside > 0, (np.log(inside) + shift**2 / 2) / shift, -np.inf)
        below = ndtr(at) if self.backward else (1 - self.rate) * ndtr(at) + self.rate * ndtr(at - shift)
        return first, np.abs(np.diff(below))

    def _loss(self, x: Real, shift: float) -> Real:
        return np.log1p(self.rate * np.expm1(shift * x - shift**2 / 2))


def attained(
    menu: list[Step],
    printed: Callable[[Counts], float],
    most: int,
    *,
    width: float = 2e-3,
    lowest: float = -12.0,
    highest: float = 14.0,
    may_stop: Callable[[Counts], bool] = lambda counts: True,
    may_follow: Callable[[Counts], bool] = lambda counts: True,
) -> float:
    """The largest delta at the printed epsilons that any policy attains: up to `most` steps from a menu, stopping at will."""
    losses = width * np.arange(round(lowest / width), round(highest / width) + 1)
    kernels = [step.losses(width) for step in menu]
    known: dict[Counts, Real] = {}

    def value(counts: Counts) -> Real:
        if counts in known:
            return known[counts]
        best = np.zeros(len(losses))
        if may_stop(counts):
            best = np.maximum(best, -np.expm1(np.minimum(printed(counts) - losses, 0.0)))
        for nth in range(len(menu)):
            after = tuple(count + (place == nth) for place, count in enumerate(counts))
            if sum(after) <= most and may_follow(after):
                best = np.maximum(best, _expected(value(after), *kernels[nth]))
        known[counts] = best
        return best

    return float(np.interp(0.0, losses, value((0,) * len(menu))))


def _expected(value: Real, first: int, masses: Real) -> Real:
    """E value(loss + step); above the grid what its end has, below it nothing."""
    size = len(value)
    padded = np.concatenate(
        [np.zeros(len(masses) + max(-first, 0)), value, np.full(len(masses) + abs(first), value[-1])]
    )
    summed = fftconvolve(padded, masses[::-1], "full")
    start = len(masses) + max(-first, 0) + first + len(masses) - 1
    return np.asarray(np.clip(summed[start : start + size] - 1e-15 * len(masses), 0.0, 1.0))
