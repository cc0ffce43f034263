"""The privacy loss on a grid, and how it composes.

A pair becomes a law on multiples of `step` by connecting the dots (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022): the
mass between two grid points moves to these points such that its P and its Q are both kept. The result dominates the pair,
because its profile is the chord of a convex function. Rounding goes the same way: every mass is enlarged by a bound on its
relative error, and moved up by a bound on the error of the split.

A composition is never multiplied out. Each node of the event's tree answers two questions about its total loss L:
`cumulant(tilt)` = log E e^{tilt L}, and `transform(tilt, size)`, the discrete Fourier transform of the law
proportional to e^{tilt l} p(l), taken modulo `size` grid points, with a bound on its rounding error. Repetition is a power,
composition a product, participation a mixture, in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft

from sfumato.account.convert import Number
from sfumato.account.noises import ROUNDING, Array, log_sum
from sfumato.account.pairs import Cells, Pair
from sfumato.errors import CannotAccount

Complex = NDArray[np.complex128]


class Moments(NamedTuple):
    """The cumulant at a tilt, and mean and variance of the tilted loss."""

    cumulant: float
    mean: float
    variance: float


@runtime_checkable
class Loss(Protocol):
    """The privacy loss of an event on a grid."""

    @property
    def infinite(self) -> float:
        """A bound on the probability of an infinite loss."""

    def cumulants(self, tilts: Array, below: bool = False) -> Array:
        """log E e^{tilt L} over the finite losses, from above, or that of an observer who only sees the cells: from below."""

    def moments(self, tilt: float) -> Moments:
        """The cumulant with its first two derivatives."""

    def transform(self, tilt: float, size: int) -> tuple[Complex, Array]:
        """The Fourier transform of the tilted law modulo `size`, and a bound on the error of each entry."""


@dataclass(frozen=True, eq=False)
class Grid:
    """The loss of one pair, on a grid or, for estimates, on its own cuts."""

    losses: Array
    index: NDArray[np.int64]
    log_mass: Array
    cell_losses: Array
    cell_log_mass: Array
    infinite: float

    def cumulants(self, tilts: Array, below: bool = False) -> Array:
        losses, log_mass = (self.cell_losses, self.cell_log_mass) if below else (self.losses, self.log_mass)
        return log_sum(log_mass + np.multiply.outer(tilts, losses))

    def moments(self, tilt: float) -> Moments:
        exponent = self.log_mass + tilt * self.losses
        cumulant = float(log_sum(exponent))
        weight = np.exp(exponent - cumulant)
        mean = float(weight @ self.losses)
        return Moments(cumulant, mean, float(weight @ (self.losses - mean) ** 2))

    def transform(self, tilt: float, size: int) -> tuple[Complex, Array]:
        exponent = self.log_mass + tilt * self.losses
        weight = np.exp(exponent - log_sum(exponent))
        law = np.bincount(self.index % size, weights=weight, minlength=size)
        still, law[0] = float(law[0]), 0.0  # a loss of 0 is the same at every frequency, and often nearly everything
        # each output of an FFT is a sum in which every term passes log2(size) rounded butterflies
        error = ROUNDING * ((8 * math.log2(size) + 16) * float(law.sum()) + 8)
        return still + rfft(law), np.full(size // 2 + 1, error)


@dataclass(frozen=True)
class Times:
    """The same loss `times` times."""

    loss: Loss
    times: int

    @property
    def infinite(self) -> float:
        return self.times * self.loss.infinite

    def cumulants(self, tilts: Array, below: bool = False) -> Array:
        return self.times * self.loss.cumulants(tilts, below)

    def moments(self, tilt: float) -> Moments:
        return Moments(*(self.times * value for value in self.loss.moments(tilt)))

    def transform(self, tilt: float, size: int) -> tuple[Complex, Array]:
        value, error = self.loss.transform(tilt, size)
        above = np.abs(value) + error
        seen = above > math.exp(-60 / self.times)  # the power of the rest is below e^-60
        power, bound = np.zeros_like(value), np.full(len(value), math.exp(-60))
        power[seen] = np.exp(self.times * np.log(value[seen]))
        grown = np.exp(np.minimum((self.times - 1) * np.log(above[seen]), 0.0))
        bound[seen] = self.times * (error[seen] + 8 * ROUNDING) * grown
        return power, bound


@dataclass(frozen=True)
class Together:
    """Different losses in a row."""

    parts: Sequence[Loss]

    @property
    def infinite(self) -> float:
        return sum(part.infinite for part in self.parts)

    def cumulants(self, tilts: Array, below: bool = False) -> Array:
        return np.asarray(np.sum([part.cumulants(tilts, below) for part in self.parts], axis=0))

    def moments(self, tilt: float) -> Moments:
        return Moments(*np.sum([part.moments(tilt) for part in self.parts], axis=0).tolist())

    def transform(self, tilt: float, size: int) -> tuple[Complex, Array]:
        value, error = self.parts[0].transform(tilt, size)
        for part in self.parts[1:]:
            other, its_error = part.transform(tilt, size)
            error = error * (np.abs(other) + its_error) + its_error * np.abs(value) + 4 * ROUNDING
            value = value * other
        return value, error


@dataclass(frozen=True)
class Sometimes:
    """With `probability` the loss, otherwise 0, and the observer sees which: the laws mix."""

    probability: float
    loss: Loss

    @property
    def infinite(self) -> float:
        return self.probability * self.loss.infinite

    def cumulants(self, tilts: Array, below: bool = False) -> Array:
        return self._mixed(self.loss.cumulants(tilts, below))

    def moments(self, tilt: float) -> Moments:
        inner = self.loss.moments(tilt)
        total, share = self._total(inner.cumulant)
        return Moments(total, share * inner.mean, share * inner.variance + share * (1 - share) * inner.mean**2)

    def transform(self, tilt: float, size: int) -> tuple[Complex, Array]:
        value, error = self.loss.transform(tilt, size)
        inner = float(self.loss.cumulants(np.array([tilt]))[0])
        _, share = self._total(inner)
        return (1 - share) + share * value, share * error + 4 * ROUNDING * (1 + abs(inner))

    def _mixed(self, inner: Number) -> Number:
        away = math.log1p(-self.probability) if self.probability < 1 else -math.inf
        result: Number = np.logaddexp(away, math.log(self.probability) + inner)
        return result

    def _total(self, inner: float) -> tuple[float, float]:
        """The cumulant, and the share in it of rounds with a loss."""
        total = float(self._mixed(inner))
        return total, math.exp(math.log(self.probability) + inner - total)


def grid(pair: Pair, step: float, spacing: float, largest: float = math.inf) -> Grid:
    """The pair on multiples of `step`, cut where neighbouring losses are about `spacing` noise units apart; 0: on those cuts.

    Losses beyond `largest` count as infinite.
    """
    losses = pair.losses(spacing)
    losses = losses[(losses <= largest) & (losses >= (-largest if pair.symmetric else -np.inf))]
    index = np.unique(np.append(np.sign(losses) * np.ceil(np.abs(losses) / step), 0.0)) if step else np.zeros(0)
    cuts = index * step if step else np.unique(losses)
    found = pair.cells(cuts)
    log_p, ratio = found.log_p + found.error, found.ratio  # from above
    low, high = connected(found, slice(1, -1), cuts[:-1], cuts[1:])
    mass = np.logaddexp(np.append(low, -np.inf), np.append(-np.inf, high))
    mass[0] = np.logaddexp(mass[0], log_p[0])
    kept, cell = mass > -np.inf, (log_p[:-1] > -np.inf) & np.isfinite(ratio[:-1])
    whole = index.astype(np.int64) if step else np.arange(len(cuts))
    infinite = float(np.exp(log_p[-1]))
    if not float(np.exp(mass[kept]).sum()) + infinite > 1.0 - 1e-9:
        raise CannotAccount(
            f"{pair}: its masses do not add up to 1, so nothing can be said. Change the noise a little."
        )
    return Grid(cuts[kept], whole[kept], mass[kept], ratio[:-1][cell], log_p[:-1][cell], infinite)


def connected(found: Cells, which: slice, low: Array, high: Array) -> tuple[Array, Array]:
    """The log-masses that some cells put on the grid points `low` and `high` around them, from above."""
    log_p, ratio, error, ratio_error = (
        part[which] for part in (found.log_p, found.ratio, found.error, found.ratio_error)
    )
    log_p = log_p + error
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        fall = np.clip(low - ratio, low - high, 0.0)
        share = -np.expm1(fall) / -np.expm1(low - high)
        doubt = 2 * ratio_error + 8 * ROUNDING * (np.abs(low) + np.abs(high))
        share = np.clip(share + doubt / -np.expm1(low - high), 0.0, 1.0)
        return log_p + np.log1p(-share), log_p + np.log(share)


def inverted(loss: Loss, tilt: float, first: int, size: int, *, together: bool = False) -> tuple[Array, float]:
    """The tilted law of a loss modulo `size` from the grid point `first` on, and how far rounding can have lowered it.

    One entry by the mean error of the transform at most. All `together` by sqrt(size) times their root mean square (Cauchy and
    Schwarz), and that of the law is that of the transform over sqrt(size) (Parseval).
    """
    value, error = loss.transform(tilt, size)
    law = np.maximum(np.roll(irfft(value, size), -(first % size)), 0.0)
    own, sizes = 16 * math.log2(size) * ROUNDING, np.abs(value)
    if together:
        return law, math.sqrt(2 * float((error**2).sum())) + own * math.sqrt(2 * float((sizes**2).sum()))
    return law, (2 * float(error.sum()) + own * float(sizes.sum())) / size
