"""delta near one epsilon, from one Fourier transform of a tilted loss."""

from __future__ import annotations

import math

import numpy as np
from scipy.fft import next_fast_len

from sfumato.account.loss_grid import Inverse, Loss
from sfumato.account.noises import ROUNDING, Array

LARGEST_WINDOW = 1 << 20
FAST_WINDOW = 1 << 17
_LOG_TAIL = -30.0
_CHERNOFF = np.array([1.0, 2.0, 4.0, 6.0, 8.0, 11.0, 16.0])


def width(loss: Loss, tilt: float, centre: float) -> float:
    """How wide a window has to be to hold the tilted loss."""
    low, high, _, _ = _window(loss, tilt, centre, 0.0)
    return high - low


def _window(loss: Loss, tilt: float, centre: float, step: float) -> tuple[float, float, Array, Array]:
    """Where the tilted loss lies but for a chance of e^_LOG_TAIL on each side, and the Chernoff exponents that say so."""
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
        low, high, away, above = _window(loss, tilt, centre, step)
        first = math.floor(low / step)
        size = next_fast_len(max(min(math.ceil(high / step) - first + 1, 2 * LARGEST_WINDOW), 64), real=True)
        inverse = Inverse(loss, tilt, first, size)
        law = inverse.law + inverse.each()
        self.step, self.centre, self.infinite = step, centre, loss.infinite
        self.losses = (first + np.arange(size)) * step
        offset = self.losses - centre
        self.log_scale = cumulant - tilt * centre
        beyond = min(float(np.min(above - away * self.losses[-1])), 0.0) - tilt * offset[-1]
        self.mass = law * np.exp(np.minimum(-tilt * offset, 300.0)) * (1 + 4 * size * ROUNDING)
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
