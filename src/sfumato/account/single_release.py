"""One release by itself: no grid and nothing to compose, only the two masses beyond epsilon."""

from __future__ import annotations

import math

import numpy as np

from sfumato.account.event import Real
from sfumato.account.noises import ROUNDING
from sfumato.account.pairs import Pair


def one_step_delta(pair: Pair, epsilon: Real) -> float:
    """P(loss > epsilon) - e^epsilon Q(loss > epsilon), from above."""
    found = pair.cells(np.array([-epsilon, 0.0, epsilon]) if epsilon else np.zeros(1))
    if math.isinf(found.log_p[-1]):
        return 0.0
    doubt = 2 * found.ratio_error[-1] + 8 * ROUNDING * epsilon
    share = -math.expm1(min(epsilon - found.ratio[-1] - doubt, 0.0))
    return float(min(1.0, math.exp(found.log_p[-1] + found.error[-1]) * share))


def one_step_epsilon(pair: Pair, delta: Real) -> float:
    """Without repetition there is nothing to approximate: the epsilon whose delta is the one asked for, by bisection."""
    if one_step_delta(pair, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while one_step_delta(pair, high) > delta:
        low, high = high, 2 * high
        if high > 1e12:
            return math.inf
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if one_step_delta(pair, middle) > delta else (low, middle)
    return high
