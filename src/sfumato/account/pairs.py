"""Dominating pairs: the two worst worlds that one event can leave an observer to tell apart.

A pair answers where its privacy loss log(P/Q) lies (`losses`) and how much of P and of Q lies between given losses
(`cells`). An accountant needs nothing else. P is the world with the unit and Q the world without it; `Reversed` turns
them round. A pair that is its own reverse (`symmetric`) serves both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from sfumato.account.noises import ROUNDING, Array, GaussianNoise, Noise, log_sampled


class Cells(NamedTuple):
    """What lies below, between and above some cuts of the loss: one more entry than there are cuts."""

    log_p: Array
    log_q: Array
    ratio: Array  # log of P's mass over Q's, by itself because a difference of logs would lose a small one
    error: Array  # how far rounding can have moved log_p and log_q
    ratio_error: Array


@runtime_checkable
class Pair(Protocol):
    """Two probability laws P and Q, seen through their loss log(P/Q)."""

    @property
    def symmetric(self) -> bool:
        """Whether (Q, P) has the same losses as (P, Q)."""

    def losses(self, spacing: float) -> Array:
        """Losses worth cutting at, sorted; a bounded loss lies strictly between the first and the last."""

    def cells(self, cuts: Array) -> Cells:
        """The masses of P and Q below, between and above the cuts."""


@dataclass(frozen=True)
class Plain:
    """Noise alone: around `shift` against around 0."""

    noise: Noise
    symmetric: bool = True

    def losses(self, spacing: float) -> Array:
        return _widened(self.noise.loss(self.noise.cuts(spacing)))

    def cells(self, cuts: Array) -> Cells:
        where = _ends(self.noise.position(cuts))
        with_unit, error = self.noise.log_masses(where, self.noise.shift)
        without, other = self.noise.log_masses(where, 0.0)
        return cells(with_unit, without, np.maximum(error, other))


@dataclass(frozen=True)
class Atoms:
    """A loss that takes finitely many values: `chances` are those of P, those of Q follow from the losses.

    Randomised response, a pure-epsilon release and a scalar staircase are such pairs.
    """

    values: tuple[float, ...]
    chances: tuple[float, ...]
    symmetric: bool = False

    def losses(self, spacing: float) -> Array:
        values = np.array(self.values)
        margin = 1e-6 * float(np.abs(values).max())
        return np.unique(np.concatenate([values - margin, [0.0], values + margin]))

    def cells(self, cuts: Array) -> Cells:
        values, chances = np.array(self.values), np.array(self.chances)
        where = np.searchsorted(cuts, values)
        p, q = (np.bincount(where, part, len(cuts) + 1) for part in (chances, chances * np.exp(-values)))
        with np.errstate(divide="ignore"):
            return cells(np.log(p), np.log(q), np.full(len(p), 8 * ROUNDING))


@dataclass(frozen=True)
class Sampled:
    """(1-rate) Q + rate P against Q: the loss is log(1 - rate + rate e^t) where t is that of the pair (P, Q)."""

    pair: Pair
    rate: float
    symmetric: bool = False

    def losses(self, spacing: float) -> Array:
        return _widened(log_sampled(self.pair.losses(spacing), self.rate))

    def cells(self, cuts: Array) -> Cells:
        inside = self.pair.cells(_unsampled(cuts, self.rate))
        go = np.log(self.rate) + inside.log_p
        log_p = np.logaddexp(np.log1p(-self.rate) + inside.log_q, go)
        ratio_error = _share(go, log_p) * inside.ratio_error
        return Cells(log_p, inside.log_q, log_sampled(inside.ratio, self.rate), inside.error, ratio_error)


@dataclass(frozen=True)
class Reversed:
    """The same two worlds, the other way round."""

    pair: Pair
    symmetric: bool = False

    def losses(self, spacing: float) -> Array:
        return -self.pair.losses(spacing)[::-1]

    def cells(self, cuts: Array) -> Cells:
        return _mirrored(self.pair.cells(-cuts[::-1]))


@dataclass(frozen=True)
class EitherWay:
    """The larger of both directions at every epsilon, for neighbours that may swap roles from one step to the next.

    This is C_rate(f) of Dong, Roth and Su for a symmetric f: the forward losses above 0, their mirror below 0, and the
    rest of the probability at 0.
    """

    pair: Pair
    symmetric: bool = True

    def losses(self, spacing: float) -> Array:
        above = self.pair.losses(spacing)
        above = above[above > 1e-9 * above[-1]]  # a loss that is 0 but for rounding is the 0 in the middle
        return np.concatenate([-above[::-1], [0.0], above])

    def cells(self, cuts: Array) -> Cells:
        above = Cells(*(part[1:] for part in self.pair.cells(np.concatenate([[0.0], cuts[cuts > 0]]))))
        below = _mirrored(above)
        atom = np.log(max(1.0 - np.exp(above.log_p).sum() - np.exp(above.log_q).sum(), 1e-300))
        # the last cell below 0 takes the atom in, whose P and Q are the same
        log_p, log_q = np.logaddexp(below.log_p[-1], atom), np.logaddexp(below.log_q[-1], atom)
        less = np.exp(below.log_q[-1] - log_q) * np.expm1(below.ratio[-1])
        ratio = np.log1p(less) if less > -0.5 else log_p - log_q  # at -1 all digits of the first are lost
        below.log_p[-1], below.log_q[-1], below.ratio[-1] = log_p, log_q, ratio
        return Cells(*(np.concatenate(both) for both in zip(below, above, strict=True)))


@dataclass(frozen=True)
class PoissonReplaced:
    """(1-rate) N(0) + rate N(+shift/2) against (1-rate) N(0) + rate N(-shift/2), of unit variance.

    With y = e^{shift x / 2} the loss is log((1 + c y)/(1 + c/y)), c = rate e^{-shift^2/8} / (1-rate), so that
    log y = loss/2 + asinh(sinh(loss/2) / c).
    """

    noise: GaussianNoise
    rate: float
    symmetric: bool = True

    def losses(self, spacing: float) -> Array:
        half = self.noise.shift / 2
        position = self.noise.cuts(spacing) - half
        up, down = (log_sampled(way * half * position - half**2 / 2, self.rate) for way in (1, -1))
        return _widened(up - down)

    def cells(self, cuts: Array) -> Cells:
        half = self.noise.shift / 2
        log_c = np.log(self.rate) - np.log1p(-self.rate) - half**2 / 2
        where = _ends((cuts / 2 + _asinh_of_sinh(cuts / 2, log_c)) / half)
        stay, go = np.log1p(-self.rate), np.log(self.rate)
        (up, a), (down, b), (rest, c) = (self.noise.log_masses(where, centre) for centre in (half, -half, 0.0))
        log_p, log_q = np.logaddexp(stay + rest, go + up), np.logaddexp(stay + rest, go + down)
        error = np.maximum(np.maximum(a, b), c)
        above, below = (log_sampled(cells(side, rest, error).ratio, self.rate) for side in (up, down))
        share = np.maximum(_share(go + up, log_p), _share(go + down, log_q))
        return Cells(log_p, log_q, above - below, error, 4 * share * error)


@dataclass(frozen=True)
class Mixed:
    """With `probability` the first pair, otherwise the second, and the observer sees which: their masses add up."""

    probability: float
    first: Pair
    second: Pair
    symmetric: bool = False

    def losses(self, spacing: float) -> Array:
        both = np.unique(np.concatenate([self.first.losses(spacing), self.second.losses(spacing)]))
        apart = np.diff(both, append=np.inf) > 1e-6 * np.abs(both) + 1e-12
        return np.asarray(both[apart])

    def cells(self, cuts: Array) -> Cells:
        one, two = self.first.cells(cuts), self.second.cells(cuts)
        often, seldom = np.log(self.probability), np.log1p(-self.probability)
        log_p, log_q = (np.logaddexp(often + a, seldom + b) for a, b in zip(one[:2], two[:2], strict=True))
        return cells(log_p, log_q, np.maximum(one.error, two.error))


def cells(log_p: Array, log_q: Array, error: Array) -> Cells:
    """Cells whose ratio is not small."""
    empty = np.isneginf(log_p) & np.isneginf(log_q)
    with np.errstate(invalid="ignore"):
        return Cells(log_p, log_q, np.where(empty, 0.0, log_p - log_q), error, 2 * error)


def _share(part: Array, whole: Array) -> Array:
    """e^(part - whole) where part <= whole, and 0 where there is nothing."""
    return np.asarray(np.exp(np.minimum(part - np.maximum(whole, -1e300), 0.0)))


def _mirrored(there: Cells) -> Cells:
    """The cells of (Q, P), in new arrays."""
    log_p, log_q, ratio, error, ratio_error = (part[::-1].copy() for part in there)
    return Cells(log_q, log_p, -ratio, error, ratio_error)


def _asinh_of_sinh(value: Array, log_c: float) -> Array:
    """asinh(sinh(value) / e^log_c), where either may overflow."""
    size = np.abs(value)
    with np.errstate(divide="ignore"):
        log_ratio = size + np.log(-np.expm1(-2 * size)) - np.log(2.0) - log_c
    small = np.arcsinh(np.exp(np.minimum(log_ratio, 30)))
    return np.asarray(np.sign(value) * np.where(log_ratio > 30, log_ratio + np.log(2.0), small))


def _unsampled(loss: Array, rate: float) -> Array:
    """The t of log(1 - rate + rate e^t) = loss; minus infinity below the smallest possible loss."""
    with np.errstate(divide="ignore", invalid="ignore"):
        small = np.log1p(np.maximum(np.expm1(np.minimum(loss, 30)) / rate, -1.0))
        return np.where(loss > 30, loss - np.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.maximum(loss, 30))), small)


def _ends(position: Array) -> Array:
    return np.concatenate([[-np.inf], position, [np.inf]])


def _widened(losses: Array) -> Array:
    margin = 1e-6 * (losses[-1] - losses[0])
    return np.concatenate([[losses[0] - margin], losses, [losses[-1] + margin]])
