"""One-dimensional noise at two centres, as far as the loss between the centres goes.

Everything is in units of the noise: the centres are 0 and `shift` = 1 / ratio. A Gaussian with an L2 sensitivity, and a
Laplace with an L1 sensitivity, are both dominated by these pairs in every dimension (the Laplace by a Lipschitz argument
on log-probabilities of events).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Array = NDArray[np.float64]
ROUNDING = float(np.finfo(float).eps)
FAR = 38.0  # beyond this many standard deviations a Gaussian has no representable mass


@runtime_checkable
class Noise(Protocol):
    """Noise whose log-density ratio between the centres `shift` and 0 rises with the position."""

    @property
    def shift(self) -> float:
        """The distance between the centres."""

    def loss(self, position: Array) -> Array:
        """The log of the density around `shift` over the density around 0."""

    def position(self, loss: Array) -> Array:
        """The largest position whose loss is at most `loss`; infinite where all or none is."""

    def log_masses(self, cuts: Array, centre: float) -> tuple[Array, Array]:
        """The log-mass between neighbouring cuts around `centre`, and a bound on its rounding error."""

    def cuts(self, spacing: float) -> Array:
        """Positions that are `spacing` apart where the mass is."""


@dataclass(frozen=True)
class GaussianNoise:
    """The standard normal law.

    >>> noise = GaussianNoise(2.0)
    >>> noise.position(noise.loss(np.array([0.5]))).tolist()
    [0.5]
    """

    shift: float

    def loss(self, position: Array) -> Array:
        return self.shift * (position - self.shift / 2)

    def position(self, loss: Array) -> Array:
        return loss / self.shift + self.shift / 2

    def log_masses(self, cuts: Array, centre: float) -> tuple[Array, Array]:
        return _between(log_ndtr, centre - cuts)

    def cuts(self, spacing: float) -> Array:
        near, growth = 6.0, 6.0  # evenly to six standard deviations, then each step in proportion to the distance
        even = np.linspace(0.0, near, int(np.ceil(near / spacing)) + 1)
        far = near * np.exp(np.arange(0.0, np.log(FAR / near), spacing / growth))
        side = np.concatenate([even, far[1:], [FAR]])
        between = np.linspace(0.0, self.shift, int(np.ceil(self.shift / spacing)) + 1)[1:-1]
        return np.concatenate([-side[::-1], between, self.shift + side])


@dataclass(frozen=True)
class LaplaceNoise:
    """The Laplace law of scale 1: its loss is bounded by `shift`, with an atom at each end."""

    shift: float

    def loss(self, position: Array) -> Array:
        return np.clip(2 * position - self.shift, -self.shift, self.shift)

    def position(self, loss: Array) -> Array:
        inside = (loss + self.shift) / 2
        return np.where(loss < -self.shift, -np.inf, np.where(loss >= self.shift, np.inf, inside))

    def log_masses(self, cuts: Array, centre: float) -> tuple[Array, Array]:
        return _between(_log_laplace, centre - cuts)

    def cuts(self, spacing: float) -> Array:
        steps = int(np.ceil(max(20.0, self.shift) / spacing))
        return np.linspace(0.0, self.shift, steps + 1)


def _log_laplace(position: Array) -> Array:
    """log P(X < position)."""
    near = np.maximum(position, 0.0)
    return np.where(position < 0, position - np.log(2.0), np.log1p(-np.exp(-near) / 2))


def _between(log_below: Callable[[Array], Array], back: Array) -> tuple[Array, Array]:
    """The log-mass of a symmetric law between the cuts at -`back`, and how far rounding can have moved it."""
    upper, lower = log_below(back), log_below(-back)
    right = -back[1:] > back[:-1]  # take the difference of the smaller tails
    large, small = np.where(right, upper[:-1], lower[1:]), np.where(right, upper[1:], lower[:-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        doubt = 4 * ROUNDING * (8 + np.abs(large))
        kept = np.maximum(
            -np.expm1(small - large), doubt
        )  # neighbouring tails may come out equal, or in the wrong order
        kept = np.where(np.isneginf(large), 0.0, np.where(np.isneginf(small), 1.0, kept))
        result = large + np.log(kept)
        error = np.where(kept > 0, doubt / np.maximum(kept, ROUNDING), 0.0)
    return result, error


def log_sum(values: Array) -> Array:
    """The log of the sum of e^values along the last axis."""
    top = values.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(values - top).sum(axis=-1)) + top[..., 0])


def log_sampled(loss: Array, rate: float) -> Array:
    """log(1 - rate + rate e^loss), precise where it is near 0."""
    large = np.logaddexp(np.log1p(-min(rate, 1 - 1e-16)), np.log(rate) + loss)
    return np.where(loss > 30, large, np.log1p(rate * np.expm1(np.minimum(loss, 30))))
