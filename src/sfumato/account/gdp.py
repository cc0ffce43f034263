"""Gaussian differential privacy: exact for Gaussians, an approximation for everything sampled.

A composition of Gaussian events is exactly mu-GDP (Dong, Roth, Su 2022), so epsilon, delta and the trade-off function have
closed forms. The central-limit values of sampled compositions are here too, by name: they are approximations, they
under-report for few rounds or small delta, and no accountant uses them as a bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from sfumato.account.checks import check_delta, check_epsilon, check_rate, check_target
from sfumato.account.dominating import merged_gaussian
from sfumato.account.event import Event, Real, Repeated
from sfumato.account.inside import check_one_relation, costs_nothing, is_non_private
from sfumato.errors import CannotAccount

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Gdp:
    """Prices compositions of Gaussians exactly and refuses everything else.

    >>> from sfumato.account.event import GaussianEvent
    >>> round(Gdp().epsilon(Repeated(GaussianEvent(25.0), 500), 1e-5), 6)
    3.84861
    """

    name: str = "gdp"

    def epsilon(self, event: Event, delta: Real) -> float:
        """The exact epsilon at `delta`."""
        check_delta(delta)
        return gdp_epsilon(self.mu(event), delta)

    def epsilons(self, event: Event, times: Sequence[int], delta: Real) -> list[float]:
        """The exact epsilon after each number of repetitions in `times`."""
        return [self.epsilon(Repeated(event, count), delta) for count in times]

    def delta(self, event: Event, epsilon: Real) -> float:
        """The exact delta at `epsilon`."""
        check_epsilon(epsilon)
        return gdp_delta(self.mu(event), epsilon)

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        """The exact trade-off function."""
        check_rate(false_positive_rate)
        return gdp_tradeoff(self.mu(event), false_positive_rate)

    def mu(self, event: Event) -> float:
        """The mu of an event that is exactly Gaussian."""
        check_one_relation(event)
        if costs_nothing(event):
            return 0.0
        if is_non_private(event):
            return math.inf
        ratio = merged_gaussian(event)
        if ratio is None:
            raise CannotAccount(
                "only compositions of Gaussian events have an exact mu; this one is sampled or has other noise. "
                "Use the accountant 'pld', or 'auto'."
            )
        return 1 / ratio


def gdp_delta(mu: Real, epsilon: Real) -> float:
    """delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2) of mu-GDP.

    >>> round(gdp_delta(1.0, 1.0), 9)
    0.126936738
    """
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    return math.exp(_log_delta(mu, epsilon))


def _log_delta(mu: float, epsilon: float) -> float:
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return first + math.log(-math.expm1(second - first)) if second < first else -math.inf


def gdp_epsilon(mu: Real, delta: Real) -> float:
    """epsilon(delta) of mu-GDP, rounded up in the last digits.

    >>> round(gdp_epsilon(2.711029846, 1e-5), 6)
    14.639294
    """
    if mu == 0 or math.isinf(mu):
        return mu
    target = math.log(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    low, high = 0.0, mu
    while _log_delta(mu, high) > target:
        low, high = high, 2 * high
    while high - low > _ROUNDING * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _log_delta(mu, middle) > target else (low, middle)
    return high


def gdp_mu(epsilon: Real, delta: Real) -> float:
    """The largest mu whose epsilon at `delta` is at most `epsilon`.

    >>> round(gdp_mu(8.0, 1e-5), 8)
    1.6660306
    """
    check_target(epsilon)
    check_delta(delta)
    target = math.log(delta)
    low, high = 0.0, 1.0
    while _log_delta(high, epsilon) <= target:
        low, high = high, 2 * high
    while high - low > _ROUNDING * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _log_delta(middle, epsilon) <= target else (low, middle)
    return low


def analytic_gaussian_noise(epsilon: Real, delta: Real, sensitivity: Real = 1.0) -> float:
    """The smallest standard deviation of one Gaussian release (Balle and Wang 2018).

    >>> round(analytic_gaussian_noise(8.0, 1e-5), 6)
    0.600229
    """
    return sensitivity / gdp_mu(epsilon, delta)


def gdp_tradeoff(mu: Real, false_positive_rate: Real) -> float:
    """G_mu(a) = Phi(Phi^-1(1 - a) - mu).

    >>> round(gdp_tradeoff(1.0, 0.05), 6)
    0.740489
    """
    return float(ndtr(-float(ndtri(false_positive_rate)) - mu))


def sampled_tradeoff(rate: Real, mu: Real, false_positive_rate: Real) -> float:
    """C_rate(G_mu)(a), the trade-off of one step on a batch of fixed size under replace (Dong, Roth, Su 2022).

    With f = rate G_mu + (1 - rate) identity and x the fixed point of G_mu: f up to x, slope -1 up to f(x), then the
    inverse of f.

    >>> round(sampled_tradeoff(0.1, 1.0, 0.5), 6)
    0.461708
    """

    def sampled(at: Real) -> float:
        return rate * gdp_tradeoff(mu, at) + (1 - rate) * (1 - at)

    fixed = float(ndtr(-mu / 2))
    if false_positive_rate <= fixed:
        return sampled(false_positive_rate)
    if false_positive_rate <= sampled(fixed):
        return fixed + sampled(fixed) - false_positive_rate
    low, high = 0.0, fixed  # the inverse, by bisection: f falls
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sampled(middle) > false_positive_rate else (low, middle)
    return low


def clt_mu_poisson(rate: Real, ratio: Real, times: int) -> float:
    """The central-limit mu of Poisson-sampled Gaussians (Bu, Dong, Long, Su 2020). An approximation, never a bound.

    >>> round(clt_mu_poisson(0.01, 1.1, 1000), 6)
    0.358495
    """
    return rate * math.sqrt(times * _expm1(ratio**-2))


def clt_mu_fixed_size(rate: Real, ratio: Real, times: int) -> float:
    """The central-limit mu of fixed-size batches under replace (Dong, Roth, Su 2022). An approximation, never a bound.

    >>> round(clt_mu_fixed_size(16 / 600, 1.0, 38 * 93), 4)
    2.711
    """
    gap = math.exp(min(ratio**-2, 700.0)) * float(ndtr(1.5 / ratio)) + 3 * float(ndtr(-0.5 / ratio)) - 2
    return math.sqrt(2 * times * max(gap, 0.0)) * rate


def _expm1(value: float) -> float:
    return float(np.expm1(min(value, 700.0)))
