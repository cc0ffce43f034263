"""From Renyi divergence to (epsilon, delta), both ways, by the improved conversion and by the classic one.

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
    """The log of the delta that `delta_from_rdp` gives."""
    result: Number = (order - 1) * (rho - epsilon + np.log1p(-1 / order)) - np.log(order)
    return result


def delta_from_rdp(order: Real, rho: Real, epsilon: Real) -> float:
    """The improved conversion, solved for delta.

    >>> round(delta_from_rdp(8, 0.5, 2.0) * 1e6, 6)
    1.351681
    """
    return math.exp(min(log_delta_from_rdp(float(order), rho, epsilon), 0.0))


def classic_epsilon_from_rdp(order: Number, rho: Number, delta: Real) -> Number:
    """The conversion of Mironov 2017, kept because published tables use it."""
    return rho + math.log(1 / delta) / (order - 1)


def classic_epsilon_from_zcdp(rho: Real, delta: Real) -> float:
    """rho-zCDP by the classic conversion at its best order: rho + 2 sqrt(rho log(1/delta)).

    >>> round(classic_epsilon_from_zcdp(0.4, 1e-5), 6)
    4.691932
    """
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def epsilon_from_zcdp(rho: Real, delta: Real) -> float:
    """rho-zCDP by the improved conversion at its best real order.

    >>> round(epsilon_from_zcdp(0.4, 1e-5), 6)
    4.161533
    """
    if rho == 0:
        return 0.0
    low, high = -30.0, 60.0  # log(order - 1)
    best = 0.0
    for _ in range(12):  # the bound is quasi-convex in the order: zoom in on the best of 41 points
        logs = np.linspace(low, high, 41)
        orders = 1 + np.exp(logs)
        values = epsilon_from_rdp(orders, rho * orders, delta)
        at = int(np.argmin(values))
        best, low, high = float(values[at]), logs[max(at - 1, 0)], logs[min(at + 1, 40)]
    return max(0.0, best)
