"""Renyi divergences of the noises that we know, at any orders above 1, plain and sampled.

`ratio` is the noise over the sensitivity under the stated relation, as in the events. Sampled integer orders are exact sums
(Mironov, Talwar, Zhang 2019; the same sum holds for every centrally symmetric noise), fractional ones are quadrature. The
series with generalised binomial coefficients is not used: without their signs it over-estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

from sfumato.account.event import Real
from sfumato.account.noises import Array, log_sampled, log_sum

LARGEST_QUADRATURE = 2_000_000


def rdp_gaussian(ratio: Real, orders: Array) -> Array:
    """order / (2 ratio^2).

    >>> rdp_gaussian(2.0, np.array([8.0])).tolist()
    [1.0]
    """
    return np.asarray(orders, float) / 2 / ratio / ratio


def rdp_laplace(ratio: Real, orders: Array) -> Array:
    """log(a/(2a-1) e^{(a-1)t} + (a-1)/(2a-1) e^{-a t}) / (a-1) with t = 1/ratio, exact under an L1 sensitivity.

    >>> rdp_laplace(1.0, np.array([1.5])).round(9).tolist()
    [0.512883511]
    """
    a, t = np.asarray(orders, float), 1 / ratio
    up, down = np.log(a / (2 * a - 1)) + (a - 1) * t, np.log((a - 1) / (2 * a - 1)) - a * t
    small = (a * _beyond_linear((a - 1) * t) + (a - 1) * _beyond_linear(-a * t)) / (2 * a - 1)
    return np.asarray(np.where(a * t < 1, np.log1p(small), np.logaddexp(up, down)) / (a - 1))


def _beyond_linear(value: Array) -> Array:
    """e^value - 1 - value to full precision, up to 1 in size."""
    value, total = np.clip(value, -1.0, 1.0), np.ones_like(value)
    for power in range(20, 2, -1):
        total = 1 + value / power * total
    return np.asarray(value**2 / 2 * total)


def rdp_laplace_ball(ratio: Real, dimension: int, orders: Array) -> Array:
    """Laplace on every coordinate under an L2 sensitivity: dimension * g(1 / (ratio sqrt(dimension))), g as in `rdp_laplace`.

    Divergences of independent coordinates add up, and g(sqrt(u)) is concave in u, so the worst direction of the L2 ball
    shares the distance out equally. It rises with the dimension, to the order / (2 ratio^2) of a Gaussian.

    >>> rdp_laplace_ball(1.0, 100, np.array([8.0])).round(6).tolist()
    [3.567677]
    """
    return np.asarray(dimension * rdp_laplace(ratio * math.sqrt(dimension), orders))


def rdp_staircase(epsilon: Real, nu: Real, shift: Real, orders: Array) -> Array:
    """Scalar staircase noise at a shift of this part of its step, up to 1, by exact integration over its steps.

    With b = e^-epsilon, E - 1 = A ((e^{-a epsilon} - 1) + b (e^{a epsilon} - 1)) (min(shift, 2 nu) + shift b/(1 - b)), where
    A = (1 - b)/(2 (nu + b (1 - nu))) is the density at 0: linear in a small shift, where smooth noise is quadratic.

    >>> rdp_staircase(1.0, 0.5, 0.01, np.array([8.0])).round(9).tolist()
    [0.31400082]
    """
    a, moved = np.asarray(orders, float), _moved(epsilon, nu, shift)[0]
    grown = (a - 1) * epsilon
    small = np.expm1(np.minimum(grown, 30.0)) * -np.expm1(-a * epsilon)  # e^{(a-1) epsilon} - 1 - b + e^{-a epsilon}
    return np.asarray(
        np.where(grown > 30.0, np.logaddexp(0.0, math.log(moved) + grown), np.log1p(moved * small)) / (a - 1)
    )


def _moved(epsilon: Real, nu: Real, shift: Real) -> tuple[float, float]:
    """What a shift of scalar staircase noise, up to a step, takes past a fall, and how that grows with the shift."""
    fall = math.exp(-epsilon)
    density = -math.expm1(-epsilon) / (2 * (nu + fall * (1 - nu)))
    always = fall / -math.expm1(-epsilon)
    return density * (min(shift, 2 * nu) + shift * always), density * ((shift < 2 * nu) + always)


def rdp_staircase_ball(ratio: Real, epsilon: Real, nu: Real, dimension: int, orders: Array) -> Array:
    """Scalar staircase noise on every coordinate under an L2 sensitivity of 1 / `ratio` steps, of which an equal share is up to 1.

    Up to one step the divergence is the log of 1 plus a multiple of a concave function of the shift, so it is concave in the
    square of the shift, and the equal split is the worst. Where a coordinate can move by more than a step, that still holds at
    the orders where the tangent at the equal split lies above the j epsilon of a shift of up to j steps; at others each
    coordinate costs epsilon for every step that it begins.
    """
    a, shift = np.asarray(orders, float), min(1 / (ratio * math.sqrt(dimension)), 1.0)
    each = rdp_staircase(epsilon, nu, shift, a)
    moved, growth = _moved(epsilon, nu, shift)
    slope = growth / (moved + np.exp(-(a - 1) * epsilon) / -np.expm1(-(a - 1) * epsilon) / -np.expm1(-a * epsilon))
    slope = slope / (a - 1) / (2 * shift)
    steps = np.arange(2.0, math.ceil(1 / ratio * (1 - 1e-9)) + 1)
    tangent = each + np.multiply.outer((steps - 1) ** 2 - shift**2, slope)
    equal_is_worst = (tangent >= steps[:, None] * epsilon).all(axis=0)
    return np.where(equal_is_worst, dimension * each, epsilon * (dimension + math.sqrt(dimension) / ratio))


def rdp_poisson_gaussian(rate: Real, ratio: Real, orders: Array) -> Array:
    """The Poisson-sampled Gaussian under add/remove.

    >>> rdp_poisson_gaussian(0.1, 0.95, np.array([2.1])).round(9).tolist()
    [0.021554184]
    """
    shift = 1 / ratio

    def fractional(some: Array) -> Array:
        step = min(0.25, 0.4 / shift)
        high = float(some.max()) * shift + 40
        if (high + 40) / step * len(some) > LARGEST_QUADRATURE:
            return np.full(len(some), np.inf)
        x = np.arange(-40.0, high, step)
        growth = log_sampled(shift * x - shift**2 / 2, rate)
        return log_sum(-(x**2) / 2 + np.multiply.outer(some, growth)) + math.log(step / math.sqrt(2 * math.pi))

    return _mixed_orders(orders, rate, lambda count: count * (count - 1) / (2 * ratio**2), fractional)


def rdp_poisson_laplace(rate: Real, ratio: Real, orders: Array) -> Array:
    """The Poisson-sampled Laplace under add/remove, with an L1 sensitivity.

    >>> rdp_poisson_laplace(0.05, 1.0, np.array([2.5])).round(9).tolist()
    [0.002696267]
    """
    t = 1 / ratio
    nodes, weights = np.polynomial.legendre.leggauss(16)

    def fractional(some: Array) -> Array:
        panels = int(min(4096, math.ceil(8 * t) + 8))
        edges = np.linspace(0.0, t, panels + 1)
        x = (edges[:-1, None] + (nodes + 1) / 2 * (t / panels)).ravel()
        log_weight = np.log(np.tile(weights, panels) * t / panels / 4) - x
        middle = log_sum(log_weight + np.multiply.outer(some, log_sampled(2 * x - t, rate)))
        ends = [some * float(log_sampled(np.array([end]), rate)[0]) + mass for end, mass in ((-t, 0.0), (t, -t))]
        return np.logaddexp(middle, np.logaddexp(*ends) - math.log(2))

    def cgf(count: Array) -> Array:
        return np.where(count < 2, 0.0, (count - 1) * rdp_laplace(ratio, np.maximum(count, 2.0)))

    return _mixed_orders(orders, rate, cgf, fractional)


def rdp_poisson_replace_gaussian(rate: Real, ratio: Real, orders: Array) -> Array:
    """(1-rate) N(0) + rate N(1/2) against (1-rate) N(0) + rate N(-1/2): Poisson sampling under replace, by quadrature.

    Orders that would need too many points are infinite, which costs tightness and nothing else.
    """
    orders = np.asarray(orders, float)
    half = 1 / ratio / 2
    step = min(0.25, 0.2 / half)
    result = np.full(len(orders), np.inf)
    fits = (2 * orders * half + 80) / step < LARGEST_QUADRATURE / len(orders)
    if fits.any():
        edge = float(orders[fits].max()) * half * 2 + 40
        x = np.arange(-edge, edge, step)
        up, down = (log_sampled(way * half * x - half**2 / 2, rate) for way in (1, -1))
        exponent = -(x**2) / 2 + down + np.multiply.outer(orders[fits], up - down)
        result[fits] = (log_sum(exponent) + math.log(step / math.sqrt(2 * math.pi))) / (orders[fits] - 1)
    return np.asarray(np.maximum(result, 0.0))


def rdp_fixed_size_gaussian(rate: Real, ratio: Real, orders: Array) -> Array:
    """A cohort of fixed size under replace, by Wang, Balle and Kasiviswanathan 2019, Theorem 27.

    The theorem holds at integer orders; between them (order - 1) rho is convex, so the chord is a bound. The even central
    moments of the likelihood ratio, which the theorem writes as forward differences, are quadrature of a positive function here,
    so nothing cancels. Orders above 256 are infinite.

    >>> rdp_fixed_size_gaussian(0.05, 1.5, np.array([4.0])).round(9).tolist()
    [0.01219081]
    """
    orders = np.asarray(orders, float)
    top = int(min(256, math.ceil(orders.max()), max(4, 40_000 * ratio)))
    return _chord(orders, _series(rate, _wang(1 / ratio, max(top, 2))))


def rdp_poisson(rate: Real, inner: Callable[[Array], Array], orders: Array, symmetric: bool) -> Array:
    """A Poisson sample of anything with the divergence `inner`, under add/remove (Zhu and Wang 2019, Theorem 5).

    The binomial sum with e^{(j-1) inner(j)}, exact in one direction; the terms from the third on count three times unless
    the noise is `symmetric`, when the other direction is no larger. Between whole orders the chord; above 256 infinite.
    """

    def terms(count: Array) -> Array:
        grown = np.where(count < 2, 0.0, (count - 1) * inner(np.maximum(count, 2.0)))
        return grown if symmetric else grown + np.where(count < 3, 0.0, math.log(3))

    whole = _whole(orders)
    count = np.arange(whole[-1] + 1)
    drawn = (whole[:, None] - count) * math.log1p(-rate) + count * math.log(rate) + terms(count)
    return _chord(orders, log_sum(_log_binomial(whole[:, None], count) + drawn))


def rdp_fixed_size(rate: Real, inner: Callable[[Array], Array], orders: Array) -> Array:
    """A cohort of fixed size of anything with the divergence `inner`, under replace (Wang, Balle, Kasiviswanathan 2019, Thm 9)."""
    count = np.arange(float(_whole(orders).max()) + 1)
    grown = (count - 1) * inner(np.maximum(count, 2.0))
    term = np.where(count < 2, -np.inf, math.log(2) + grown)
    term[0], term[2] = 0.0, min(float(term[2]), math.log(4) + _log_expm1(float(grown[2])))
    return _chord(orders, _series(rate, term))


def _whole(orders: Array) -> Array:
    """The whole orders from 2 that the given ones need, up to 256."""
    return np.arange(2.0, max(2, min(256, math.ceil(np.max(orders)))) + 1)


def _chord(orders: Array, cumulants: Array) -> Array:
    """Divergences from (order - 1) times them at the orders 2, 3, ...: between two the chord, above the last infinite."""
    orders, known = np.asarray(orders, float), np.concatenate([[0.0, 0.0], cumulants])
    top = len(known) - 1
    low, high = (np.minimum(side(orders), top).astype(int) for side in (np.floor, np.ceil))
    part = orders - np.floor(orders)
    chord = (1 - part) * known[low] + part * known[high]
    return np.where(orders > top, np.inf, chord / (orders - 1))


def _log_expm1(value: Real) -> float:
    return value + math.log(-math.expm1(-value)) if value > 0 else -math.inf


def _series(rate: float, term: Array) -> Array:
    """The log of the sum over j of binomial(order, j) rate^j times e^term, at the orders 2, 3, ... up to the last term."""
    count = np.arange(float(len(term)))
    return log_sum(_log_binomial(count[2:, None], count) + count * math.log(rate) + term)


def _wang(shift: float, top: int) -> Array:
    """The logs of the terms j = 0 to `top` of Theorem 27."""
    even = np.arange(2, top + 2, 2)
    x = np.arange(-40.0, top * shift + 40, 0.1 if shift < 4 else 0.2)
    with np.errstate(divide="ignore"):
        distance = shift * x - shift**2 / 2
        gap = np.where(distance > 30, distance, np.log(np.abs(np.expm1(np.minimum(distance, 30)))))
    density = -(x**2) / 2 + math.log((x[1] - x[0]) / math.sqrt(2 * math.pi))
    moment = np.array([log_sum(density + power * gap) for power in even])
    term = np.full(top + 1, -np.inf)
    term[0] = 0.0
    j = np.arange(3, top + 1)
    gaussian = np.arange(top + 1) * (np.arange(top + 1) - 1) * shift**2 / 2
    term[2] = min(math.log(4) + _log_expm1(shift**2), shift**2 + math.log(2))
    pairwise = math.log(4) + (moment[j // 2 - 1] + moment[(j + 1) // 2 - 1]) / 2
    term[3:] = np.minimum(pairwise, math.log(2) + gaussian[3:])
    return term


def _mixed_orders(
    orders: Array, rate: float, cgf: Callable[[Array], Array], fractional: Callable[[Array], Array]
) -> Array:
    """Whole orders by the binomial sum, the rest by quadrature, or by the chord of whole ones where that fails."""
    orders, rate = np.asarray(orders, float), min(rate, 1 - 1e-16)
    whole = orders == np.floor(orders)
    result = np.empty(len(orders))
    result[whole] = [_binomial_sum(int(order), rate, cgf) for order in orders[whole]]
    if not whole.all():
        some = orders[~whole]
        values = fractional(some)
        below, above = np.floor(some), np.ceil(some)
        chords = {int(k): _binomial_sum(int(k), rate, cgf) for k in {*below, *above}}
        low, high = (np.array([chords[int(k)] for k in side]) for side in (below, above))
        result[~whole] = np.minimum(values, low + (some - below) * (high - low))
    return np.maximum(result, 0.0) / (orders - 1)


def _binomial_sum(order: int, rate: float, cgf: Callable[[Array], Array]) -> float:
    if order < 2:
        return 0.0
    count = np.arange(order + 1, dtype=float)
    terms = _log_binomial(np.array(float(order)), count) + (order - count) * math.log1p(-rate) + count * math.log(rate)
    return float(log_sum(terms + cgf(count)))


def _log_binomial(n: Array, k: Array) -> Array:
    with np.errstate(invalid="ignore"):
        value = gammaln(n + 1) - gammaln(k + 1) - gammaln(np.maximum(n - k, 0) + 1)
    return np.where(k <= n, value, -np.inf)
