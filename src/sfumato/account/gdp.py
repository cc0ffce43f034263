"""Gaussian differential privacy: exact for Gaussians, an approximation for everything sampled.

A composition of Gaussian events is exactly mu-GDP (Dong, Roth, Su 2022), so epsilon, delta and the trade-off function have
closed forms. The central-limit values of sampled compositions are here too, by name: they are approximations, they
under-report for few rounds or small delta, and no accountant uses them as a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erf, erfcx, log_ndtr, ndtr, ndtri, roots_jacobi

from sfumato.account.checks import check_delta, check_epsilon, check_rate
from sfumato.account.convert import Number
from sfumato.account.dominating import merged_gaussian
from sfumato.account.event import Event, Real
from sfumato.account.inside import known_cost
from sfumato.account.noises import ROUNDING
from sfumato.errors import CannotAccount

_DOUBT = 4e-12  # ten times the largest error of `_log_delta` that was found beside 700 digits
_FAR = 40.0  # beyond this many standard deviations a tail is below every positive number
_SMALL = 0.5
_INNER, _INNER_WEIGHTS = roots_jacobi(5, 0, 1)
_NODES = np.append(-1.0, _INNER) / 2 + 0.5  # Gauss-Radau on [0, 1] with a node at 0
_WEIGHTS = np.append(2 / 36, _INNER_WEIGHTS / (1 + _INNER)) / 2


@dataclass(frozen=True)
class Gdp:
    """Prices compositions of Gaussians exactly and refuses everything else.

    >>> from sfumato.account.event import GaussianEvent, Repeated
    >>> round(Gdp().epsilon(Repeated(GaussianEvent(25.0), 500), 1e-5), 6)
    3.84861
    """

    name: str = "gdp"

    def epsilon(self, event: Event, delta: Real) -> float:
        check_delta(delta)
        return gdp_epsilon(self.mu(event), delta)

    def delta(self, event: Event, epsilon: Real) -> float:
        check_epsilon(epsilon)
        return gdp_delta(self.mu(event), epsilon)

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        check_rate(false_positive_rate)
        return gdp_tradeoff(self.mu(event), false_positive_rate)

    def mu(self, event: Event) -> float:
        """The mu of an event that is exactly Gaussian."""
        known = known_cost(event)
        if known is not None:
            return known
        ratio = merged_gaussian(event)
        if ratio is None:
            raise CannotAccount(
                "only compositions of Gaussian events have an exact mu; this one is sampled or has other noise. "
                "Use the accountant 'pld', or 'auto'."
            )
        return math.nextafter(1 / ratio, math.inf)


def gdp_delta(mu: Real, epsilon: Real) -> float:
    """delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2) of mu-GDP, rounded up.

    >>> round(gdp_delta(1.0, 1.0), 9)
    0.126936738
    """
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    log_delta = _log_delta(mu, _threshold(mu, epsilon))
    return math.nextafter(math.exp(min(log_delta, 0.0)), 1.0)


def _threshold(mu: float, epsilon: float) -> float:
    """epsilon/mu - mu/2 from below: where the better test between N(0, 1) and N(mu, 1) cuts, seen from mu."""
    far, half = epsilon / mu, mu / 2
    return far - half - 4 * ROUNDING * (far + half)


def _log_delta(mu: float, threshold: float) -> float:
    """log delta at epsilon = mu (threshold + mu/2), from above, for every mu > 0.

    With R(x) = Phi(-x)/phi(x), e^epsilon phi(x + mu) = phi(x) at the threshold x, so that delta = Phi(-x) times
    (R(x) - R(x + mu)) / R(x). For small mu that difference cancels, and it is the integral of -R'(t) = 1 - t R(t) instead.
    R is the Laplace transform of e^{-u^2/2}, so -R' is completely monotone, and a Gauss-Radau rule with a node at the left
    end, whose error has the sign of an odd derivative, never falls short.
    """
    if threshold >= _FAR:
        return -threshold * threshold / 2
    mills = _mills(threshold)
    if mu > _SMALL:
        fall = 1 - _mills(threshold + mu) / mills
    else:
        at = threshold + mu * _NODES
        fall = mu * float(_WEIGHTS @ (1 - at * _mills(at))) / mills
    return float(log_ndtr(-threshold)) + math.log(fall) + _DOUBT


def _mills(at: Number) -> Number:
    result: Number = math.sqrt(math.pi / 2) * erfcx(at / math.sqrt(2))
    return result


def gdp_epsilon(mu: Real, delta: Real) -> float:
    """epsilon(delta) of mu-GDP, rounded up in the last digits.

    The search is over the threshold, which stays between -40 and 40 however small or large mu is.

    >>> round(gdp_epsilon(2.711029846, 1e-5), 6)
    14.639294
    """
    if mu == 0 or math.isinf(mu):
        return mu
    target = math.log(delta)
    if _log_delta(mu, _threshold(mu, 0.0)) <= target:
        return 0.0
    _, at = bisect(max(-mu / 2, -_FAR), _FAR, lambda threshold: _log_delta(mu, threshold) > target)
    return math.nextafter(mu * (at + mu / 2 + 4 * ROUNDING * (abs(at) + mu / 2)), math.inf)


def bisect(low: float, high: float, below: Callable[[float], bool]) -> tuple[float, float]:
    """Two neighbours to 14 digits, such that `below` was seen to hold at the first and not to hold at the second."""
    while high - low > 1e-14 * max(abs(low), abs(high)):
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


def gdp_tradeoff(mu: Real, false_positive_rate: Real) -> float:
    """G_mu(a) = Phi(Phi^-1(1 - a) - mu), rounded down.

    >>> round(gdp_tradeoff(1.0, 0.05), 6)
    0.740489
    """
    if mu == 0:
        return 1.0 - false_positive_rate
    if math.isinf(mu) or false_positive_rate == 1:
        return 0.0
    cut = float(ndtri(false_positive_rate))
    return float(ndtr(-cut - mu - 8 * ROUNDING * (1 + abs(cut) + mu))) * (1 - 8 * ROUNDING) if cut > -math.inf else 1.0


def clt_mu_poisson(rate: Real, ratio: Real, times: int) -> float:
    """The central-limit mu of Poisson-sampled Gaussians (Bu, Dong, Long, Su 2020). An approximation, never a bound.

    >>> round(clt_mu_poisson(0.01, 1.1, 1000), 6)
    0.358495
    """
    return rate * math.sqrt(times * _expm1(1 / ratio / ratio))


def clt_mu_fixed_size(rate: Real, ratio: Real, times: int) -> float:
    """The central-limit mu of fixed-size batches under replace (Dong, Roth, Su 2022). An approximation, never a bound.

    >>> round(clt_mu_fixed_size(16 / 600, 1.0, 38 * 93), 4)
    2.711
    """
    near, far = (float(erf(part / ratio / math.sqrt(8))) for part in (1, 3))  # Phi(part/2 / ratio) is (1 + erf) / 2
    gap = _expm1(1 / ratio / ratio) * (1 + far) / 2 + (far - 3 * near) / 2
    return math.sqrt(2 * times * max(gap, 0.0)) * rate


def _expm1(value: float) -> float:
    return float(np.expm1(min(value, 700.0)))
