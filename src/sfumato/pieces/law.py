"""Noise laws: the standard deviation that is drawn is the one that is accounted. No torch is needed to state a cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar, runtime_checkable

from sfumato.account.event import Event, GaussianEvent, LaplaceBallEvent, LaplaceEvent
from sfumato.claim import Claim, LawOfNoise, Reach, text
from sfumato.errors import BadValue
from sfumato.key import Key

if TYPE_CHECKING:
    import torch


@runtime_checkable
class Law(LawOfNoise, Protocol):
    """Noise on every coordinate, as a multiple of the norm that bounds a row."""

    @property
    def noise_multiplier(self) -> float:
        """The multiple."""

    def stddev(self, claim: Claim) -> float:
        """The standard deviation on each coordinate; infinite where nothing bounds the norm that it is a multiple of."""

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        """Float64 noise of this standard deviation."""

    def with_noise(self, noise_multiplier: float) -> Law:
        """The same law with another multiple."""


Same = TypeVar("Same", bound="Multiple")


@dataclass(frozen=True)
class Multiple:
    """Noise that is a positive multiple of a norm."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_multiple(self)

    def with_noise(self: Same, noise_multiplier: float) -> Same:
        return replace(self, noise_multiplier=noise_multiplier)


def check_multiple(law: Multiple) -> None:
    """Refuse a multiple that is no size."""
    if not (law.noise_multiplier > 0.0 and math.isfinite(law.noise_multiplier)):
        raise BadValue(
            f"{text(law)}: the noise multiplier is positive and finite, e.g. 1.0. "
            "For a run without noise use the recipe fedavg, the non-private baseline."
        )


@dataclass(frozen=True)
class Gaussian(Multiple):
    """N(0, stddev^2) on every coordinate, with stddev = `noise_multiplier` times the L2 norm that bounds a row.

    States: `GaussianEvent(stddev / L2 distance)`. The Gaussian mechanism depends on the L2 distance of the two means
    only, whatever the dimension (Dong, Roth, Su 2022, Theorem 2.7).
    """

    order: ClassVar[int] = 2

    def stddev(self, claim: Claim) -> float:
        return self.noise_multiplier * claim.l2

    def distance(self, reach: Reach) -> float:
        return reach.l2

    def event(self, stddev: float, reach: Reach) -> Event:
        return GaussianEvent(stddev / reach.l2)

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        return key.normal(*shape, stddev=stddev)


@dataclass(frozen=True)
class Laplace(Multiple):
    """Laplace noise on every coordinate, of scale `noise_multiplier` times the norm that bounds a row: L1, or L2 (`order` 2).

    States, order 1: `LaplaceEvent(scale / L1 distance)`. The one-dimensional pair at the L1 distance dominates in every
    dimension: along the segment between the two centres, log-probabilities of any event and of its complement are Lipschitz
    in the L1 distance over the scale. Order 2: `LaplaceBallEvent`, which is known to Renyi only; in one dimension the two
    norms are the same.
    """

    order: int = 1

    def __post_init__(self) -> None:
        check_multiple(self)
        if self.order not in (1, 2):
            raise BadValue(
                f"{text(self)}: the scale is a multiple of the L1 norm (order 1) or of the L2 norm (order 2)."
            )

    def stddev(self, claim: Claim) -> float:
        """The standard deviation on each coordinate: the scale times the square root of 2."""
        return math.sqrt(2.0) * self.noise_multiplier * (claim.l1 if self.order == 1 else claim.l2)

    def distance(self, reach: Reach) -> float:
        return reach.l1 if self.order == 1 else reach.l2

    def event(self, stddev: float, reach: Reach) -> Event:
        ratio = stddev / math.sqrt(2.0) / self.distance(reach)
        if self.order == 1 or reach.coordinates(self) == 1:
            return LaplaceEvent(ratio)
        return LaplaceBallEvent(ratio, reach.dimension)

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        return key.laplace(*shape, stddev=stddev)
