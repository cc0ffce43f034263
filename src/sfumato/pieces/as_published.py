"""Laws as UDP-FL publishes them: drawn on every coordinate under an L2 clip, accounted as if there were one. They pay nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sfumato.account.event import Event, StaircaseBallEvent, StaircaseEvent
from sfumato.claim import Claim, Reach, text
from sfumato.errors import UnsoundRound
from sfumato.key import Key
from sfumato.pieces.law import Laplace, Multiple
from sfumato.pieces.staircase import moments

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class PerCoordinateStaircase(Multiple):
    """Scalar staircase noise on each coordinate by itself, whose step is the L2 norm that bounds a row.

    loss = 1 / `noise_multiplier`; it falls at 1 / (1 + e^(loss / 2)) of each step, as UDP-FL has it. States, where it is asked:
    `StaircaseBallEvent`, which grows with the root of the dimension. A round has it in `AsPublished` only.
    """

    order: ClassVar[int] = 2

    @property
    def loss(self) -> float:
        return 1.0 / self.noise_multiplier

    @property
    def share(self) -> float:
        return 1.0 / (1.0 + math.exp(self.loss / 2.0))

    def stddev(self, claim: Claim) -> float:
        return claim.l2 * math.sqrt(moments(1, self.loss, self.share)[1])

    def distance(self, reach: Reach) -> float:
        return reach.l2

    def event(self, stddev: float, reach: Reach) -> Event:
        ratio = stddev / math.sqrt(moments(1, self.loss, self.share)[1]) / reach.l2
        if reach.coordinates(self) == 1 and ratio * (1.0 + 1e-9) >= 1.0:
            return StaircaseEvent(self.loss, self.share)
        return StaircaseBallEvent(ratio, self.loss, self.share, reach.dimension)

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        """A sign, a geometric number of steps, and a place in the step before or after the density falls."""
        import torch

        count, fall = math.prod(shape), math.exp(-self.loss)
        sign, steps, side, place = key.uniform(4 * count).reshape(4, count)
        whole = np.floor(np.log(steps) / -self.loss)
        before = side < self.share / (self.share + (1.0 - self.share) * fall)
        size = whole + np.where(before, self.share * place, self.share + (1.0 - self.share) * place)
        step = stddev / math.sqrt(moments(1, self.loss, self.share)[1])
        return torch.from_numpy(np.where(sign < 0.5, -step, step) * size).reshape(shape)


@dataclass(frozen=True)
class AsPublished:
    """Noise that a paper accounts by its formula for one coordinate. States nothing: a round with it runs unproven only.

    `law` is the same noise with its true cost, which is shown beside the claim.
    """

    law: Laplace | PerCoordinateStaircase
    order: ClassVar[int] = 2

    @property
    def noise_multiplier(self) -> float:
        return self.law.noise_multiplier

    def with_noise(self, noise_multiplier: float) -> AsPublished:
        return replace(self, law=self.law.with_noise(noise_multiplier))

    def stddev(self, claim: Claim) -> float:
        return self.law.stddev(claim)

    def distance(self, reach: Reach) -> float:
        return self.law.distance(reach)

    def event(self, stddev: float, reach: Reach) -> Event:
        raise UnsoundRound(
            f"{text(self)}: the formula for one coordinate at the L2 distance is false for {reach.dimension}, whose losses add up.",
            "use Gaussian, Laplace(order=2), or Laplace or Staircase under Clip(norm, order=1); or say unproven.",
        )

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        return self.law.sample(shape, stddev, key)
