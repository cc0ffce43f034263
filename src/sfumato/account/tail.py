"""delta near one epsilon: of one release from the two masses beyond it, else from one Fourier transform of a tilted loss."""

from __future__ import annotations

import math

import numpy as np
from scipy.fft import next_fast_len

from sfumato.account.event import Real
from sfumato.account.gdp import bisect
from sfumato.account.loss_grid import Loss, inverted
from sfumato.account.noises import ROUNDING, Array
from sfumato.account.pairs import Pair

LARGEST_WINDOW = 1 << 20
FAST_WINDOW = 1 << 17
_LOG_TAIL = -30.0
_CHERNOFF = np.array([1.0, 2.0, 4.0, 6.0, 8.0, 11.0, 16.0])


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
    return bisect(low, high, lambda epsilon: one_step_delta(pair, epsilon) > delta)[1]


def window(loss: Loss, tilt: float, centre: float, step: float = 0.0) -> tuple[float, float, Array, Array]:
    """Where the tilted loss lies, up to a probability of e^_LOG_TAIL on each side, and the Chernoff exponents that say so."""
    cumulant, mean, variance = loss.moments(tilt)
    spread = max(math.sqrt(variance), step, 1e-9 * abs(mean), 1e-290)
    away = np.concatenate([_CHERNOFF / spread, tilt * _CHERNOFF / 8]) if tilt else _CHERNOFF / spread
    above = loss.cumulants(tilt + away) - cumulant
    below = loss.cumulants(tilt - away) - cumulant
    high = max(float(np.min((above - _LOG_TAIL) / away)), centre) + 2 * step
    low = min(float(np.max((_LOG_TAIL - below) / away)), centre) - 2 * step
    return low, high, away, above


class Tail:
    """delta(epsilon) in the neighbourhood of `centre`, from one transform of the law tilted by `tilt`."""

    def __init__(self, loss: Loss, step: float, tilt: float, centre: float) -> None:
        cumulant = loss.moments(tilt).cumulant
        low, high, away, above = window(loss, tilt, centre, step)
        first = math.floor(low / step)
        size = next_fast_len(max(min(math.ceil(high / step) - first + 1, 2 * LARGEST_WINDOW), 64), real=True)
        law, doubt = inverted(loss, tilt, first, size)
        self.step, self.centre, self.infinite = step, centre, loss.infinite
        self.losses = (first + np.arange(size)) * step
        offset = self.losses - centre
        self.log_scale = cumulant - tilt * centre
        beyond = min(float(np.min(above - away * self.losses[-1])), 0.0) - tilt * offset[-1]
        self.mass = (law + doubt) * np.exp(np.minimum(-tilt * offset, 300.0)) * (1 + 4 * size * ROUNDING)
        self.above = np.cumsum(self.mass[::-1])[::-1] + math.exp(min(beyond, 300.0))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon in the window whose delta is at most `delta`; infinite if there is none."""
        log_wanted = math.log(delta - self.infinite) - self.log_scale if delta > self.infinite else -math.inf
        found = np.nonzero(self.above <= math.exp(min(log_wanted, 300.0)))[0]
        if len(found) == 0 or log_wanted > 200.0:
            return math.inf
        wanted, last = math.exp(log_wanted), int(found[0])
        first = int(np.searchsorted(self.losses, self.losses[last] - 300.0))
        p, q = self.above[first:], self._discounted(first, self.losses[last])
        rise = np.exp(np.minimum(self.losses[first:] - self.losses[last], 300.0))
        at = int(np.nonzero(p - rise * q <= wanted)[0][0])
        high = float(self.losses[first + at])
        if at == 0:
            return high
        inside = (p[at] - wanted) / q[at] if q[at] > 0 else 0.0
        exact = float(self.losses[last]) + math.log(inside) if inside > 0 else -math.inf
        return min(high, max(exact, float(self.losses[first + at - 1])))

    def deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon; all of them are at least `centre`, and at most 300 above it."""
        at = np.minimum(np.searchsorted(self.losses, epsilons), len(self.losses) - 1)
        first = int(at.min())
        q = self._discounted(first, self.centre)
        inside = self.above[at] - np.exp(np.minimum(epsilons - self.centre, 300.0)) * q[at - first]
        with np.errstate(divide="ignore"):
            log_delta = np.log(np.maximum(inside, 0.0)) + self.log_scale
        return np.asarray(np.minimum(np.exp(np.minimum(log_delta, 0.0)) + self.infinite, 1.0))

    def _discounted(self, first: int, reference: float) -> Array:
        """The Q-mass at and above each loss from `first` on, times e^reference, from below."""
        mass = self.mass[first:] * np.exp(np.minimum(reference - self.losses[first:], 300.0))
        return np.asarray(np.cumsum(mass[::-1])[::-1] * (1 - 8 * len(mass) * ROUNDING))
