"""Gaussian differential privacy beside sixty digits: never on the wrong side, however much noise, and close to the truth."""

from __future__ import annotations

import math
from itertools import product

import mpmath
import pytest
from scipy.special import ndtri

from sfumato.account import accountant, calibrate_noise
from sfumato.account.event import Composed, GaussianEvent, Repeated
from sfumato.account.gdp import gdp_delta, gdp_epsilon, gdp_tradeoff

DIGITS = 700  # more than the 2 * 300 that a difference can lose
RATIOS = (1e-3, 0.02, 0.3, 1.0, 1.9, 2.1, 7.0, 1e3, 1e6, 3e8, 1e11, 7e11, 1e13, 1e17, 1e40, 1e150, 1e155, 1e290, 1e300)
DELTAS = (1e-300, 1e-100, 1e-30, 1e-12, 1e-5, 0.01, 0.3, 0.9, 0.999)


def exact_delta(mu: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    """Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)."""

    def tail(at: mpmath.mpf) -> mpmath.mpf:
        return mpmath.erfc(at / mpmath.sqrt(2)) / 2

    return tail(epsilon / mu - mu / 2) - mpmath.exp(epsilon) * tail(epsilon / mu + mu / 2)


@pytest.fixture(autouse=True)
def precise() -> object:
    with mpmath.workdps(DIGITS):
        yield


@pytest.mark.parametrize("ratio", RATIOS)
def test_epsilon_is_never_below_the_truth_and_close_to_it(ratio: float) -> None:
    mu = 1 / mpmath.mpf(ratio)
    for delta in (*DELTAS, *(delta * min(1.0, 1 / ratio) for delta in (1e-4, 0.1, 0.39))):
        if delta == 0.0:
            continue
        found = accountant("gdp").epsilon(GaussianEvent(ratio), delta)
        assert exact_delta(mu, mpmath.mpf(found)) <= delta, (ratio, delta)
        if found > 0:
            less = mpmath.mpf(found) * (1 - mpmath.mpf(1e-9)) - mu * mpmath.mpf(1e-9)
            assert less < 0 or exact_delta(mu, less) > delta, (ratio, delta)


@pytest.mark.parametrize("ratio", RATIOS)
def test_delta_is_never_below_the_truth_and_close_to_it(ratio: float) -> None:
    mu = 1 / mpmath.mpf(ratio)
    for threshold in (-30.0, -3.0, -0.1, 0.0, 1.0, 10.0, 36.0, 60.0):
        epsilon = (threshold + 1 / ratio / 2) / ratio
        if epsilon >= 0:
            exact, found = exact_delta(mu, mpmath.mpf(epsilon)), accountant("gdp").delta(GaussianEvent(ratio), epsilon)
            assert exact <= found <= exact * (1 + mpmath.mpf(1e-9)) + 1e-323, (ratio, threshold)


def test_the_smallest_noise_keeps_the_promise() -> None:
    for epsilon, delta in product((1e-5, 0.1, 3.0, 100.0, 1e5), (1e-300, 1e-20, 1e-5, 0.3)):
        ratio = mpmath.mpf(calibrate_noise(GaussianEvent, epsilon, delta))
        assert exact_delta(1 / ratio, mpmath.mpf(epsilon)) <= delta, (epsilon, delta)
        less = ratio * (1 - mpmath.mpf(1e-9))
        assert exact_delta(1 / less, mpmath.mpf(epsilon)) > delta, (epsilon, delta)


@pytest.mark.parametrize("mu", [1e-300, 1e-17, 1e-12, 1e-3, 1.0, 5.0, 37.0, 60.0])
def test_a_trade_off_is_never_above_the_truth_and_close_to_it(mu: float) -> None:
    for rate in (1e-300, 1e-30, 1e-9, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9):
        # Newton on log Phi, since mpmath has no inverse of erf for such values
        cut = mpmath.mpf(float(ndtri(rate)))
        for _ in range(8):
            value = mpmath.erfc(-cut / mpmath.sqrt(2)) / 2
            cut -= value * mpmath.log(value / mpmath.mpf(rate)) / mpmath.npdf(cut)
        exact = mpmath.erfc((cut + mpmath.mpf(mu)) / mpmath.sqrt(2)) / 2
        found = gdp_tradeoff(mu, rate)
        assert exact * (1 - mpmath.mpf(1e-9)) - 2.3e-308 <= found <= exact, (mu, rate)


def test_the_ends_of_a_trade_off() -> None:
    for mu in (0.0, 1e-300, 3.0):
        assert gdp_tradeoff(mu, 0.0) == 1.0
        assert gdp_tradeoff(mu, 1.0) == 0.0
    assert gdp_tradeoff(math.inf, 0.0) == 0.0
    assert gdp_tradeoff(0.0, 0.3) == 0.7


def test_a_composition_is_not_below_its_exact_mu() -> None:
    """Squares of such ratios are no numbers, and the sum of many is rounded."""
    for ratios in ((1e200, 3e200), (1e-200, 1.0), (3.0, 7.0, 0.1), (1e300, 1e300, 1e299)):
        mu = mpmath.sqrt(sum(1 / mpmath.mpf(ratio) ** 2 for ratio in ratios))
        found = accountant("gdp").mu(Composed(tuple(map(GaussianEvent, ratios))))  # type: ignore[attr-defined]
        assert mu <= found <= mu * (1 + mpmath.mpf(1e-14))
    assert accountant("gdp").mu(Repeated(GaussianEvent(3.0), 7)) >= mpmath.sqrt(7) / 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("ratio", [1e200, 1e-3])
def test_the_other_accountants_answer_too(ratio: float) -> None:
    for delta in (1e-300, 1e-5, 0.999):
        exact = gdp_epsilon(1 / ratio, delta)
        assert accountant("rdp").epsilon(GaussianEvent(ratio), delta) >= exact * (1 - 1e-9)
        assert accountant("pld").epsilon(GaussianEvent(ratio), delta) >= exact * (1 - 1e-9)
    assert gdp_delta(1 / ratio, 0.0) > 0
