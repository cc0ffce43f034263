"""Discrete Gaussians and sums of their shares: the stated Renyi curve against exact sums, and where it may be used."""

from __future__ import annotations

import json
import math
from functools import reduce

import numpy as np
import pytest

from sfumato.account import accountant
from sfumato.account.discrete import rdp_discrete_gaussian
from sfumato.account.event import (
    DiscreteGaussianEvent,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    Mixture,
    PoissonSampled,
    Relation,
    Repeated,
    from_json,
)
from sfumato.account.rdp import rdp_of
from sfumato.errors import BadValue, CannotAccount

ORDERS = np.unique(np.concatenate([np.linspace(1.05, 6.0, 18), [8.0, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 200]]))
FAR = 1200


def law(share: float, shares: int) -> np.ndarray:
    """The chances of a sum of shares at -FAR to FAR, in logarithms, by convolution."""
    x = np.arange(-FAR, FAR + 1.0)
    one = np.exp(-(x**2) / (2 * share**2))
    one /= math.fsum(one)
    if shares == 1:
        return -(x**2) / (2 * share**2) - math.log(math.fsum(np.exp(-(x**2) / (2 * share**2))))
    reach = 60 * math.ceil(share)
    short = one[FAR - reach : FAR + reach + 1]
    total = reduce(np.convolve, [short] * shares)
    half = len(total) // 2
    with np.errstate(divide="ignore"):
        return np.log(total[half - FAR : half + FAR + 1] if half > FAR else np.pad(total, FAR - half))


def divergence(log_p: np.ndarray, shift: int, order: float) -> float:
    """Of the law against itself, moved by `shift`."""
    here, moved = log_p[shift:], log_p[: len(log_p) - shift]
    seen = np.isfinite(here) & np.isfinite(moved) & (here > -300)
    terms = order * here[seen] + (1 - order) * moved[seen]
    return float(np.logaddexp.reduce(terms) / (order - 1))


@pytest.mark.parametrize(
    ("share", "shares", "shift"), [(0.5, 1, 1), (0.7, 2, 1), (0.6, 5, 2), (1.0, 10, 3), (3.0, 4, 5)]
)
def test_the_exact_divergence_stays_under_the_stated_curve(share: float, shares: int, shift: int) -> None:
    event = DiscreteGaussianEvent(math.sqrt(shares) * share / shift, shares, share)
    stated = rdp_discrete_gaussian(event, ORDERS)
    log_p = law(share, shares)
    low = ORDERS[
        shares**0.5 * share > 0.05 * ORDERS * shift
    ]  # higher orders look beyond where a convolution has digits
    assert len(low) >= 5
    for order in low:
        true = divergence(log_p, shift, order)
        assert true <= stated[order == ORDERS][0] * (1 + 1e-9)
    if share >= 1.0:  # where the curve is tight: two thirds of the noise would not do
        assert divergence(log_p, shift, 2.0) > rdp_discrete_gaussian(
            DiscreteGaussianEvent(event.ratio * 1.5, shares, share), np.array([2.0])
        )


def test_a_sum_of_coarse_shares_costs_more_than_a_gaussian() -> None:
    """It is no discrete Gaussian: tau is what that costs, more in more dimensions, and nothing on a fine grid."""
    plain = rdp_discrete_gaussian(DiscreteGaussianEvent(2.0), ORDERS)
    coarse = [rdp_discrete_gaussian(DiscreteGaussianEvent(2.0, 10, 0.8, d), ORDERS) for d in (1, 1000)]
    assert (plain < coarse[0]).all() and (coarse[0] < coarse[1]).all()
    fine = DiscreteGaussianEvent(2.0, 1000, 5.0, 10**7)
    assert np.allclose(rdp_discrete_gaussian(fine, ORDERS), ORDERS / 8, rtol=1e-12)
    many = rdp_discrete_gaussian(DiscreteGaussianEvent(2.0, 500, 0.8), ORDERS)
    tau = 10 * sum(math.exp(-2 * math.pi**2 * 0.64 * k / (k + 1)) for k in range(1, 500))
    exact = ORDERS / 2 * (0.5 + tau) ** 2
    assert (many >= exact).all() and np.allclose(many, exact, rtol=1e-2)
    with pytest.raises(CannotAccount, match="too coarse"):
        rdp_discrete_gaussian(DiscreteGaussianEvent(2.0, 2, 0.4), ORDERS)


@pytest.mark.parametrize("order", [2, 3, 5, 9])
def test_the_sampled_curve_is_that_of_the_exact_mixture(order: int) -> None:
    rate, share, shift = 0.2, 2.0, 2
    log_p = law(share, 1)
    here, moved = log_p[shift:], log_p[: len(log_p) - shift]
    mixed = np.logaddexp(math.log1p(-rate) + here, math.log(rate) + moved)
    both = [
        float(np.logaddexp.reduce(order * one + (1 - order) * other)) / (order - 1)
        for one, other in ((mixed, here), (here, mixed))
    ]
    event = PoissonSampled(rate, DiscreteGaussianEvent(share / shift))
    assert max(both) == pytest.approx(rdp_of(event, np.array([float(order)]))[0], rel=1e-6)


EVENT = DiscreteGaussianEvent(1.5, 49, 300.0, 1000)


@pytest.mark.parametrize(
    "event",
    [
        EVENT,
        Repeated(PoissonSampled(0.1, DiscreteGaussianEvent(1.5)), 20),
        Repeated(FixedSizeSampled(0.1, EVENT), 20),
        Repeated(Mixture(0.1, EVENT), 20),
    ],
    ids=str,
)
def test_only_renyi_prices_it_and_never_below_the_gaussian(event: Event) -> None:
    assert from_json(event.to_json()) == event
    assert "discrete Gaussian noise, standard deviation 1.5 x sensitivity" in event.words()
    for name in ("pld", "gdp"):
        with pytest.raises(CannotAccount):
            accountant(name).epsilon(event, 1e-5)
    found = accountant("auto").epsilon(event, 1e-5)
    assert found == accountant("rdp").epsilon(event, 1e-5)
    inside = next(part for part in event.walk() if isinstance(part, DiscreteGaussianEvent))
    written, other = (json.dumps(one.to_json()) for one in (inside, GaussianEvent(inside.ratio)))
    gaussian = from_json(json.loads(json.dumps(event.to_json()).replace(written, other)))
    assert found >= accountant("auto").epsilon(gaussian, 1e-5)


def test_what_has_no_proof_is_refused() -> None:
    for event in (PoissonSampled(0.1, EVENT, Relation.REPLACE), FixedSizeSampled(0.1, EVENT, Relation.ADD_REMOVE)):
        with pytest.raises(CannotAccount):
            accountant("auto").epsilon(event, 1e-5)
    for wrong in ({"ratio": 0.0}, {"shares": 0}, {"share": -1.0}, {"dimension": 0}):
        with pytest.raises(BadValue):
            DiscreteGaussianEvent(**{"ratio": 1.0, **wrong})  # type: ignore[arg-type]
