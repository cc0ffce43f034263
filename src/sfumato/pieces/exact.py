"""Laws of noise in whole steps of a grid, drawn exactly: what they state holds for the numbers that a computer adds.

Rows and their sums are whole numbers of steps (`Grid`), the noise is one too, and float64 adds them without rounding. The bound
of a row holds with 2^-21 to spare (`Clip` shrinks by 2^-20), which covers the last digits of the standard deviation and its ratio.
Votes reach their bound exactly: there what accountants round up, 1e-12 and more, covers these digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sfumato.account.event import DiscreteGaussianEvent, Event
from sfumato.claim import Claim, Reach, text
from sfumato.errors import UnsoundRound
from sfumato.exact_draws import discrete_gaussian, rounded_gaussian
from sfumato.key import Key
from sfumato.pieces.law import Gaussian

if TYPE_CHECKING:
    import torch


BITS = 20
LARGEST_SUM = 2.0**52  # of steps: float64 holds every whole number up to twice that


def on_grid(claim: Claim, bits: int, who: object) -> Claim:
    """The claim after rows were cut off at whole steps: the largest power of 2 up to their bound times 2^-bits."""
    if math.isinf(claim.l2):
        raise UnsoundRound(
            f"{text(who)} comes before anything bounds a row: its step is a part of that bound.",
            "put Clip(norm) into the client slot, before the grid.",
        )
    _, exponent = math.frexp(claim.l2)
    step = math.ldexp(1.0, exponent - 1 - bits)
    if claim.population * (claim.l2 / step) > LARGEST_SUM:
        raise UnsoundRound(
            f"{text(who)}: the rows of all {claim.population:,} may add up to more than 2^52 steps, which float64 does not add "
            "exactly.",
            "use a grid of fewer bits.",
        )
    return replace(claim, grid=step)


def summed_for(law: object, claim: Claim) -> Claim:
    """The claim of a sum to which this law's noise is added: of rows cut off at a grid, if the law draws whole steps."""
    return on_grid(claim, BITS, law) if isinstance(law, ExactLaw) else claim


def _stddev(law: Gaussian, claim: Claim) -> float:
    if claim.grid is None:
        raise UnsoundRound(
            f"{text(law)} draws whole steps of a grid, but what it is added to lies on none: it is no sum of whole numbers, so "
            "the noise would not hide how it was rounded.",
            "put Grid() last before the noise in the client slot, use Sum() as the aggregate, and Divide(over) after the noise.",
        )
    return law.noise_multiplier * claim.l2


@dataclass(frozen=True)
class RoundedGaussian(Gaussian):
    """N(0, stddev^2) rounded to the nearest step of the grid on which the rows lie, exactly.

    States: `GaussianEvent(stddev / L2 distance)`, for every accountant. A whole number plus rounded noise is the rounded sum of
    both, so what is released is a function of the Gaussian mechanism's own release (post-processing).
    """

    def stddev(self, claim: Claim) -> float:
        return _stddev(self, claim)

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        """Noise in steps, as whole numbers; `stddev` is in steps too."""
        import torch

        return torch.from_numpy(rounded_gaussian(math.prod(shape), stddev, key)).reshape(shape)


@dataclass(frozen=True)
class DiscreteGaussian(Gaussian):
    """Whole numbers of steps with chances proportional to exp(-x^2 / (2 stddev^2)), exactly: noise whose shares add up.

    States: a Renyi divergence of at most order / (2 ratio^2), that of the Gaussian (Canonne, Kamath, Steinke 2020, Theorem 4),
    in any dimension; for a sum of shares see `DiscreteGaussianEvent`. No pair that dominates it in many dimensions is known,
    so only the Renyi accountant prices it.
    """

    def stddev(self, claim: Claim) -> float:
        return _stddev(self, claim)

    def event(self, stddev: float, reach: Reach) -> Event:
        return DiscreteGaussianEvent(stddev / reach.l2)

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        """Noise in steps, as whole numbers; `stddev` is in steps too."""
        import torch

        return torch.from_numpy(discrete_gaussian(math.prod(shape), stddev, key)).reshape(shape)


ExactLaw: TypeAlias = RoundedGaussian | DiscreteGaussian


@dataclass(frozen=True)
class SharesOf:
    """The law of a sum of equal shares of a discrete Gaussian, each of standard deviation `share` and in steps of `grid`."""

    law: DiscreteGaussian
    share: float
    grid: float
    dimension: int

    def distance(self, reach: Reach) -> float:
        return self.law.distance(reach)

    def event(self, stddev: float, reach: Reach) -> Event:
        """What a sum costs whose noise has this standard deviation: of (stddev / share)^2 shares."""
        count = round((stddev / self.share) ** 2)
        return DiscreteGaussianEvent(stddev / reach.l2, count, self.share / self.grid, self.dimension)
