"""Staircase noise on the L1 norm of the whole row: a density that falls in steps, so that a unit's loss is one step at most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.account.event import Event, PureEvent, StaircaseEvent
from sfumato.claim import Claim, Reach, text
from sfumato.errors import BadValue, CannotAccount
from sfumato.key import Key
from sfumato.pieces.law import Multiple, check_multiple

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]
_WIDER = 1.0 + 1e-9  # the step over the norm that bounds a row: a whole number of norms is never more steps by rounding
_NEGLIGIBLE = 80.0  # levels whose log-weight lies so far below the largest are left out: together less than 1e-30
_SMOOTH = 1e-17
_MOST_LEVELS = 2**24


@dataclass(frozen=True)
class Staircase(Multiple):
    """Noise whose density falls by e^-loss at every step of its L1 norm (Geng, Kairouz, Oh, Viswanath 2015).

    loss = 1 / `noise_multiplier`, and a step is as long as the L1 norm that bounds a row, so that it tends to Laplace noise
    of the same multiplier as the dimension grows. It falls at `nu` of each step; without it, where its variance is the least.

    States: a unit that moves the value by r steps in L1 crosses at most ceil(r) falls, so this is `PureEvent(ceil(r) loss)`
    in every dimension; on one coordinate and within one step it is the exact `StaircaseEvent`. That the noise is drawn
    jointly is needed: a staircase on each coordinate by itself loses far more.
    """

    nu: float | None = None
    order: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_multiple(self)
        if self.nu is not None and not 0.0 < self.nu < 1.0:
            raise BadValue(f"{text(self)}: nu is the part of a step before the density falls, between 0 and 1.")

    @property
    def loss(self) -> float:
        """What one step costs."""
        return 1.0 / self.noise_multiplier

    def share(self, dimension: int) -> float:
        """The part of a step before the density falls."""
        return best_share(dimension, self.loss) if self.nu is None else self.nu

    def _deviation(self, dimension: int) -> float:
        """The standard deviation on each coordinate over the step."""
        return math.sqrt(moments(dimension, self.loss, self.share(dimension))[1] / dimension)

    def stddev(self, claim: Claim) -> float:
        return claim.l1 * _WIDER * self._deviation(claim.dimension)

    def distance(self, reach: Reach) -> float:
        return reach.l1

    def event(self, stddev: float, reach: Reach) -> Event:
        step = stddev / self._deviation(reach.coordinates(self))
        falls = math.ceil(reach.l1 / step)
        if reach.dimension == 1 and falls == 1:
            return StaircaseEvent(self.loss, self.share(1))
        return PureEvent(falls * self.loss)

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        """A level by its weight, a radius within it that is uniform in volume, and a direction uniform on the L1 sphere."""
        dimension = math.prod(shape)
        first, below = levels(dimension, self.loss, self.share(dimension))
        level = first + int(np.searchsorted(below, key.child("level").uniform(1)[0] * below[-1]))
        within = float(key.child("radius").uniform(1)[0]) ** (1.0 / dimension)
        radius = (level + self.share(dimension)) * within * stddev / self._deviation(dimension)
        direction = key.child("direction").laplace(*shape)
        return direction.mul_(radius / direction.abs().sum())


@lru_cache(maxsize=8)
def levels(dimension: int, loss: float, share: float) -> tuple[int, Array]:
    """The lowest level k that matters, and the sums of the weights e^(-k loss) (k + share)^dimension from there on.

    Noise that is uniform in the L1 ball of radius k + share, with these weights, is the staircase: the ball's volume grows
    with that power, and what falls away at k + share is the k-th ball. The log-weights are concave in k, with their top near
    dimension / loss, so those that are left out fall at least as fast as geometrically.
    """
    top = max(dimension / loss - share, 0.0)
    reach = math.sqrt(2.0 * _NEGLIGIBLE * (dimension + 1.0)) / loss + (_NEGLIGIBLE + 10.0) / loss + 2.0
    first = max(0, math.floor(top - reach))
    if top + 2.0 * reach - first > _MOST_LEVELS:
        raise CannotAccount(
            f"staircase noise of loss {loss:g} a step has more levels than fit into memory. Use Laplace noise, to which it tends."
        )
    level = np.arange(first, math.ceil(top + 2.0 * reach) + 1.0)
    logs = dimension * np.log1p((level - top) / (top + share)) - (level - top) * loss
    return first, np.cumsum(np.exp(logs - logs.max()))


def _is_smooth(dimension: int, loss: float) -> bool:
    return -0.5 * (dimension - 1) * math.log1p((2 * math.pi / loss) ** 2) < math.log(_SMOOTH)


def moments(dimension: int, loss: float, share: float) -> tuple[float, float]:
    """The expected L1 norm and squared L2 norm of staircase noise whose step is 1.

    In the ball of radius r the L1 norm is r d / (d + 1) on average, and the squared L2 norm 2 r^2 d / ((d + 1)(d + 2)). By
    Poisson's summation, sums over the levels are those of the gamma law but for (1 + (2 pi / loss)^2)^(-(d - 1) / 2).
    Where that is nothing, the moments are Laplace's: d / loss and 2 d / loss^2.
    """
    if _is_smooth(dimension, loss):
        return dimension / loss, 2.0 * dimension / loss**2
    first, below = levels(dimension, loss, share)
    chances = np.diff(below, prepend=0.0) / below[-1]
    radius = first + np.arange(len(chances)) + share
    mean, square = float((chances * radius).sum()), float((chances * radius**2).sum())
    return mean * dimension / (dimension + 1), square * 2.0 * dimension / (dimension + 1) / (dimension + 2)


@lru_cache(maxsize=1024)
def best_share(dimension: int, loss: float) -> float:
    """Where in a step the density should fall, for the least variance: in closed form on one coordinate.

    >>> round(best_share(1, 1.0), 9)
    0.416737435
    """
    if dimension == 1:  # ((b (1 + b) / 2)^(1/3) - b) / (1 - b) with b = e^-loss, without cancellation or overflow
        rise = (math.log1p(math.expm1(-loss) / 2) + 2 * loss) / 3
        above = math.exp(-loss) * math.expm1(rise) if loss < 1.0 else math.exp(rise - loss) - math.exp(-loss)
        return min(max(above / -math.expm1(-loss), 1e-9), 0.5)
    if _is_smooth(dimension, loss):
        return 0.5
    from scipy.optimize import minimize_scalar

    grid = np.linspace(0.02, 0.98, 25)
    start = float(grid[np.argmin([moments(dimension, loss, float(share))[1] for share in grid])])
    near = (max(start - 0.04, 1e-6), min(start + 0.04, 1 - 1e-6))
    return float(minimize_scalar(lambda share: moments(dimension, loss, share)[1], bounds=near, method="bounded").x)
