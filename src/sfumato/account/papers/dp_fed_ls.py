"""The papers' closed forms, as named helpers that reproduce their tables and refuse where their conditions fail.

None of them is the accountant of anything: the privacy-loss distribution is tighter and needs no condition.
`norm` is the clip norm G, `rate` the share of clients in a round, noise the standard deviation of the released sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from sfumato.account.checks import check_delta, check_rounds, check_target
from sfumato.account.convert import classic_epsilon_from_rdp, epsilon_from_rdp
from sfumato.account.divergences import rdp_fixed_size_gaussian, rdp_poisson_gaussian
from sfumato.account.event import Real
from sfumato.account.gdp import bisect
from sfumato.errors import BadValue, CannotAccount

# the factor under the root and the smallest noise^2 / (2 norm)^2, for uniform (1) and Poisson (2) sampling
_FACTOR = {1: 14.0, 2: 8.0}
_SMALLEST = {1: 0.67, 2: 0.53}
_LARGEST_ORDER = 1000


@dataclass(frozen=True)
class DpFedLs:
    """Theorem 1 (uniform sampling, replace) or 2 (Poisson) of DP-Fed-LS at given epsilon, delta, rate, rounds and norm.

    >>> setting = DpFedLs(theorem=1, epsilon=8, delta=1000**-1.1, rate=0.05, rounds=30, norm=0.3)
    >>> round(setting.integer_noise(), 4)
    0.6861
    """

    theorem: int
    epsilon: Real
    delta: Real
    rate: Real
    rounds: int
    norm: Real

    def __post_init__(self) -> None:
        if self.theorem not in _FACTOR:
            raise BadValue(f"theorem={self.theorem}: 1 (uniform sampling) or 2 (Poisson sampling) is needed.")
        if not 0 < self.rate <= 1 or not self.norm > 0:
            raise BadValue(f"rate={self.rate}, norm={self.norm}: a rate in (0, 1] and a positive norm are needed.")
        check_target(self.epsilon)
        check_delta(self.delta)
        check_rounds(self.rounds)

    def order(self, weight: Real) -> float:
        """The Renyi order that belongs to a weight (the paper's lambda)."""
        return math.log(1 / self.delta) / ((1 - weight) * self.epsilon) + 1

    def noise(self, weight: Real) -> float:
        """The right-hand side of equation (3) or (4), whether or not the side conditions hold."""
        inside = _FACTOR[self.theorem] * self.rounds / weight
        return self.rate * self.norm / self.epsilon * math.sqrt(inside * self.order(weight) * self.epsilon)

    def holds(self, noise: Real, order: Real) -> bool:
        """Whether both side conditions hold."""
        share = noise**2 / (4 * self.norm**2)
        inside = self.rate * order * (1 + share)
        within = inside < 1 and order - 1 <= share * 2 / 3 * math.log(1 / inside)
        return bool(within and share >= _SMALLEST[self.theorem])

    def unconstrained(self) -> tuple[float, float]:
        """The weight with the smallest noise, and that noise, ignoring the side conditions. Not a guarantee."""
        weight = float(minimize_scalar(self.noise, bounds=(1e-9, 1 - 1e-9), options={"xatol": 1e-12}).x)  # it is convex
        return weight, self.noise(weight)

    def feasible_noise(self) -> float:
        """The smallest right-hand side whose weight meets the side conditions, with the real orders that the paper uses.

        The lemmas behind it are proved at integer orders only: `integer_noise` is what they support.
        """
        best, _ = self.unconstrained()

        def fits(weight: float) -> bool:
            return self.holds(self.noise(weight), self.order(weight))

        inside = next((float(weight) for weight in np.linspace(best, 0.0, 4001)[:-1] if fits(weight)), None)
        if inside is None:
            raise self._refusal("no weight meets its side conditions")
        # the noise falls with the weight: push to the edge of the condition
        return self.noise(bisect(inside, min(inside + best / 4000, best), fits)[0])

    def integer_noise(self) -> float:
        """The smallest noise that the theorem supports as it is proved: an integer order and both side conditions."""
        best = math.inf
        for order in range(2, min(_LARGEST_ORDER, math.ceil(1 / self.rate))):
            weight = 1 - math.log(1 / self.delta) / ((order - 1) * self.epsilon)
            if weight > 0:
                best = min(best, self._smallest(self.noise(weight), order))
        if math.isinf(best):
            raise self._refusal("no integer order meets its side conditions")
        return best

    def _smallest(self, noise: Real, order: int) -> float:
        """The smallest noise from this one up at which the side conditions hold at an order; infinite if there is none."""
        low = max(noise, 2 * self.norm * math.sqrt(_SMALLEST[self.theorem])) * (1 + 1e-12)
        if self.holds(low, order):
            return low
        # the second condition first gets easier with the noise and then harder: at the last `easier` it is easiest
        rate = self.rate * order

        def easier(share: float) -> bool:
            return -math.log(rate * (1 + share)) - share / (1 + share) >= 0

        easiest = 2 * self.norm * math.sqrt(bisect(0.0, max(1 / rate - 1, 0.0), easier)[0])
        if easiest <= low or not self.holds(easiest, order):
            return math.inf
        return bisect(low, easiest, lambda noise: not self.holds(noise, order))[1]

    def _refusal(self, why: str) -> CannotAccount:
        return CannotAccount(
            f"DP-Fed-LS Theorem {self.theorem} at epsilon={self.epsilon}: {why}. Use the accountant 'auto'."
        )


def dp_fed_ls_epsilon(theorem: int, noise: Real, norm: Real, rate: Real, rounds: int, delta: Real) -> float:
    """The epsilon that Theorem 1 or 2 of DP-Fed-LS proves for a given noise: an integer order, both side conditions.

    epsilon = factor rate^2 norm^2 rounds order / noise^2 + log(1/delta) / (order - 1), at the best order that is allowed.
    """
    setting = DpFedLs(theorem, 1.0, delta, rate, rounds, norm)
    allowed = [order for order in range(2, _LARGEST_ORDER) if setting.holds(noise, order)]
    if not allowed:
        raise CannotAccount(
            f"DP-Fed-LS Theorem {theorem}: its side conditions fail at noise {noise:.4g} for every order. Use 'auto'."
        )
    spent = _FACTOR[theorem] * (rate * norm / noise) ** 2 * rounds
    return min(spent * order + math.log(1 / delta) / (order - 1) for order in allowed)


def dp_fed_ls_table_uniform(rate: Real, ratio: Real, rounds: int, delta: Real) -> float:
    """Tables 2 and 3 of DP-Fed-LS, uniform column: Wang et al. at integer orders, classic conversion.

    `ratio` is over the replace sensitivity, twice the clip norm.

    >>> round(dp_fed_ls_table_uniform(0.05, 1.5, 200, 2000**-1.1), 2)
    5.23
    """
    orders = np.arange(2.0, 257)
    curve = rounds * rdp_fixed_size_gaussian(rate, ratio, orders)
    return float(np.min(classic_epsilon_from_rdp(orders, curve, delta)))


def dp_fed_ls_table_poisson(rate: Real, ratio: Real, rounds: int, delta: Real) -> float:
    """Tables 2 and 3 of DP-Fed-LS, Poisson column: exact divergences at their orders, classic conversion.

    >>> round(dp_fed_ls_table_poisson(0.05, 1.5, 200, 2000**-1.1), 2)
    2.56
    """
    orders = np.concatenate([np.arange(11, 110) / 10, np.arange(12.0, 64)])
    curve = rounds * rdp_poisson_gaussian(rate, ratio, orders)
    return float(np.min(classic_epsilon_from_rdp(orders, curve, delta)))


def dp_fedsam_epsilon(rate: Real, ratio: Real, rounds: int, delta: Real) -> tuple[float, float]:
    """Equations (16) and (17) of DP-FedSAM, read as Mironov et al. (mu_1 is one Gaussian): epsilon and its real order.

    It holds for Poisson sampling under add/remove; the algorithm as written draws a fixed-size cohort.

    >>> [round(value, 3) for value in dp_fedsam_epsilon(0.1, 0.95, 200, 1 / 500)]
    [8.513, 2.278]
    """
    check_delta(delta)
    low, high = -4.0, 6.0  # log(order - 1)
    for _ in range(8):
        orders = 1 + np.exp(np.linspace(low, high, 33))
        values = epsilon_from_rdp(orders, rounds * rdp_poisson_gaussian(rate, ratio, orders), delta)
        at = int(np.argmin(values))
        low, high = math.log(orders[max(at - 1, 0)] - 1), math.log(orders[min(at + 1, 32)] - 1)
    return float(values[at]), float(orders[at])
