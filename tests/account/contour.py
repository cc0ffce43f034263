"""The exact epsilon of many equal steps, by an integral in the complex plane: no grid of losses, nothing rounded up.

delta(epsilon) = E (1 - e^{epsilon - L})+ is the inverse Laplace transform (1 / 2 pi i) times the integral of
e^{K(s) - s epsilon} / (s (s + 1)) along a vertical line, where K(s) = log E e^{sL}. On the line through a saddle the trapezoid
rule converges faster than any power. An estimate to ten digits, and so a twin, not a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]
Cumulant = Callable[[Complex], Complex]


class Law(NamedTuple):
    """Nodes and weights: E f(L) - f(0) is the sum of weight (f(loss) - f(0))."""

    losses: Real
    weights: Real

    def cumulant(self, times: int) -> Cumulant:
        def value(s: Complex) -> Complex:
            with np.errstate(over="ignore", invalid="ignore"):  # far from every saddle
                return times * np.array([np.log1p(np.expm1(one * self.losses) @ self.weights) for one in s])

        return value


def nodes(low: float, high: float) -> tuple[Real, Real]:
    x, w = np.polynomial.legendre.leggauss(20)
    edges = np.linspace(low, high, math.ceil(4 * (high - low)) + 1)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + (x + 1) * half).ravel(), (w * half).ravel()


def density(x: Real) -> Real:
    return np.asarray(np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def sampled(rate: float, loss: Real) -> Real:
    return np.where(loss > 30, math.log(rate) + loss, np.log1p(rate * np.expm1(np.minimum(loss, 30))))


def poisson(rate: float, ratio: float, backward: bool = False) -> Law:
    """(1-rate) N(0) + rate N(shift) against N(0)."""
    shift = 1 / ratio
    x, w = nodes(-13, 13 + shift)
    loss = sampled(rate, shift * x - shift**2 / 2)
    if backward:
        return Law(-loss, w * density(x))
    return Law(loss, w * ((1 - rate) * density(x) + rate * density(x - shift)))


def fixed_size(rate: float, ratio: float) -> Law:
    """C_rate: the losses above 0, their mirror below it, and the rest of the probability at 0."""
    shift = 1 / ratio
    x, w = nodes(shift / 2, 13 + shift)
    loss = sampled(rate, shift * x - shift**2 / 2)
    with_unit = w * ((1 - rate) * density(x) + rate * density(x - shift))
    return Law(np.concatenate([loss, -loss]), np.concatenate([with_unit, w * density(x)]))


def poisson_replace(rate: float, ratio: float) -> Law:
    """(1-rate) N(0) + rate N(+shift/2) against (1-rate) N(0) + rate N(-shift/2)."""
    half = 1 / ratio / 2
    x, w = nodes(-13 - half, 13 + half)
    up, down = (sampled(rate, way * half * x - half**2 / 2) for way in (1, -1))
    return Law(up - down, w * ((1 - rate) * density(x) + rate * density(x - half)))


def exact_epsilon(cumulant: Cumulant, delta: float, largest: float) -> float:
    """The epsilon below `largest`, by bisection; the line goes through the saddle of the last guess."""
    tilts = np.geomspace(0.1, 400, 120)
    at_tilts = np.real(cumulant(tilts.astype(complex)))
    guess = largest
    for _ in range(3):
        action = at_tilts - tilts * guess - np.log(tilts) - np.log1p(tilts)
        tilt = float(tilts[np.nanargmin(np.where(np.isfinite(action), action, np.nan))])
        near = np.real(cumulant(tilt * np.array([0.999, 1.0, 1.001]) + 0j))
        spread = math.sqrt(max(float(near[0] - 2 * near[1] + near[2]), 0.0)) / (1e-3 * tilt) + 1 / tilt
        step = 2 * math.pi / (40 * spread + 40 / tilt)
        parts: list[Complex] = []
        while len(parts) < 100:
            parts.append(cumulant(tilt + 1j * step * (256 * len(parts) + np.arange(256))))
            if float(np.real(parts[-1][-32:]).max()) - float(np.real(parts[0][0])) < -25:
                break
        values = np.concatenate(parts)
        line = tilt + 1j * step * np.arange(len(values))
        weight = np.full(len(values), step / math.pi)
        weight[0] /= 2

        def excess(epsilon: float, values: Complex = values, line: Complex = line, weight: Real = weight) -> float:
            return float(np.real(np.exp(values - line * epsilon) / (line * (line + 1))) @ weight) - delta

        low, high = 0.0, largest
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        guess = high
    return guess
