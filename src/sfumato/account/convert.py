"""From Renyi divergence to (epsilon, delta), both ways, by the improved conversion and by the classic one; and to a trade-off.

Improved (Canonne, Kamath, Steinke 2020, Proposition 12): a mechanism with divergence rho at order a has
delta <= e^{(a-1)(rho - epsilon)} / a * (1 - 1/a)^{a-1}. Solved for epsilon:
epsilon = rho + log(1 - 1/a) - log(delta a) / (a - 1). Classic (Mironov 2017): epsilon = rho + log(1/delta) / (a - 1).
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from sfumato.account.event import Real
from sfumato.account.noises import Array

Number = TypeVar("Number", float, Array)


def epsilon_from_rdp(order: Number, rho: Number, delta: Real) -> Number:
    """The improved conversion; it may be negative, which means 0.

    >>> round(float(epsilon_from_rdp(8.0, 0.5, 1.3516813580297707e-06)), 9)
    2.0
    """
    result: Number = rho + np.log1p(-1 / order) - (math.log(delta) + np.log(order)) / (order - 1)
    return result


def log_delta_from_rdp(order: Number, rho: Number, epsilon: Real) -> Number:
    """The log of the improved conversion, solved for delta.

    >>> round(math.exp(log_delta_from_rdp(8.0, 0.5, 2.0)) * 1e6, 6)
    1.351681
    """
    result: Number = (order - 1) * (rho - epsilon + np.log1p(-1 / order)) - np.log(order)
    return result


def classic_epsilon_from_rdp(order: Number, rho: Number, delta: Real) -> Number:
    """The conversion of Mironov 2017, kept because published tables use it."""
    return rho + math.log(1 / delta) / (order - 1)


def tradeoff_from_profile(epsilons: Array, deltas: Array, false_positive_rate: Real) -> float:
    """A floor under the false negative rate of every test, from delta(epsilon) at some epsilons >= 0.

    f(a) >= max(1 - delta - e^epsilon a, e^-epsilon (1 - delta - a)) at each of them.
    """
    left = 1 - deltas - np.exp(np.minimum(epsilons, 700.0)) * false_positive_rate
    right = np.exp(-epsilons) * (1 - deltas - false_positive_rate)
    return float(max(0.0, left.max(), right.max()))
