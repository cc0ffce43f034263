"""The Renyi divergence of discrete Gaussians and of their sums, on whole numbers in any dimension."""

from __future__ import annotations

import math

import numpy as np

from sfumato.account.event import DiscreteGaussianEvent
from sfumato.account.noises import Array
from sfumato.errors import CannotAccount


def rdp_discrete_gaussian(event: DiscreteGaussianEvent, orders: Array) -> Array:
    """order / 2 (1 / ratio + tau sqrt(dimension))^2, with tau = 10 sum_{k=1}^{shares-1} e^{-2 pi^2 share^2 k / (k + 1)}.

    Kairouz, Liu and Steinke 2021, Proposition 14: a sum of discrete Gaussians of variance `share`^2 >= 1/4 is nearly a discrete
    Gaussian. Of one share tau is 0, and this is the bound of Canonne, Kamath and Steinke 2020, Theorem 4.

    >>> rdp_discrete_gaussian(DiscreteGaussianEvent(2.0), np.array([8.0])).tolist()
    [1.0]
    """
    if event.shares > 1 and event.share < 0.5:
        raise CannotAccount(
            f"shares of discrete Gaussian noise of {event.share:g} steps are too coarse: a proof needs at least 0.5. Use a finer "
            "grid (more bits)."
        )
    return np.asarray(np.asarray(orders, float) / 2 * (1 / event.ratio + _apart(event)) ** 2)


def _apart(event: DiscreteGaussianEvent) -> float:
    """tau sqrt(dimension), from above: from the 64th term on each counts as much as that one."""
    first = [math.exp(-2 * math.pi**2 * event.share**2 * k / (k + 1)) for k in range(1, min(event.shares, 65))]
    rest = max(event.shares - 65, 0) * first[-1] if first else 0.0
    return 10 * (math.fsum(first) + rest) * math.sqrt(event.dimension)
