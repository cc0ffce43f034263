"""Extreme but legal values: a bound, or a refusal that says that none can be computed. Bad ones: one clear sentence."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from sfumato.account import accountant
from sfumato.account.event import (
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    PoissonSampled,
    Relation,
    Repeated,
)
from sfumato.account.pairs import Atoms, EitherWay
from sfumato.errors import BadValue, CannotAccount, SfumatoError


def shapes(rate: float, ratio: float) -> list[Event]:
    noise = GaussianEvent(ratio)
    return [
        PoissonSampled(rate, noise),
        FixedSizeSampled(rate, noise),
        PoissonSampled(rate, noise, Relation.REPLACE),
        PoissonSampled(rate, LaplaceEvent(ratio)),
        Mixture(rate, noise),
    ]


@pytest.mark.parametrize("ratio", [0.05, 500.0])
@pytest.mark.parametrize("rate", [1e-7, 0.99])
def test_extremes_give_a_number(ratio: float, rate: float) -> None:
    for event, times, delta in product(shapes(rate, ratio), (1, 1_000_000), (1e-30, 0.5)):
        found = accountant().epsilon(Repeated(event, times), delta)
        assert not math.isnan(found)
        assert found >= 0


@pytest.mark.parametrize("event", shapes(0.01, 1.0), ids=repr)
def test_extremes_by_renyi(event: Event) -> None:
    for times, delta in product((1, 1_000_000), (1e-30, 0.5)):
        try:
            found = accountant("rdp").epsilon(Repeated(event, times), delta)
        except CannotAccount:
            continue
        assert found >= accountant("pld").epsilon(Repeated(event, times), delta) * (1 - 3e-4)


def test_a_million_rounds_at_a_tiny_rate_approach_the_central_limit() -> None:
    """Loss per step tiny, steps many: the one regime where the limit is right, as a second opinion."""
    from sfumato.account.gdp import clt_mu_poisson, gdp_epsilon

    found = accountant().epsilon(Repeated(PoissonSampled(1e-3, GaussianEvent(5.0)), 1_000_000), 1e-5)
    assert found == pytest.approx(gdp_epsilon(clt_mu_poisson(1e-3, 5.0, 1_000_000), 1e-5), rel=2e-3)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: GaussianEvent(-1.0),
        lambda: GaussianEvent(math.nan),
        lambda: GaussianEvent(math.inf),
        lambda: LaplaceEvent(0.0),
        lambda: PoissonSampled(1.1, GaussianEvent(1.0)),
        lambda: PoissonSampled(math.nan, GaussianEvent(1.0)),
        lambda: FixedSizeSampled(0.0, GaussianEvent(1.0)),
        lambda: Mixture(-0.1, GaussianEvent(1.0)),
        lambda: Repeated(GaussianEvent(1.0), 0),
        lambda: accountant().epsilon(GaussianEvent(1.0), 0.0),
        lambda: accountant().epsilon(GaussianEvent(1.0), 1.0),
        lambda: accountant().epsilon(GaussianEvent(1.0), math.nan),
        lambda: accountant("pld").delta(GaussianEvent(1.0), -1.0),
        lambda: accountant("rdp").delta(GaussianEvent(1.0), math.nan),
        lambda: accountant("gdp").tradeoff(GaussianEvent(1.0), 1.5),
        lambda: accountant("pdl"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: object) -> None:
    with pytest.raises(SfumatoError) as refusal:
        wrong()  # type: ignore[operator]
    assert isinstance(refusal.value, BadValue)
    assert "\n" not in str(refusal.value)


def test_a_cell_of_large_losses_only_keeps_its_ratio() -> None:
    """Nothing is left at 0, and 1 - e^-45 is 1."""
    found = EitherWay(Atoms((45.0,), (1.0,))).cells(np.array([-50.0, 0.0, 50.0]))
    assert found.ratio == pytest.approx([0.0, -45.0, 45.0, 0.0])
    assert found.log_p[1:3] == pytest.approx([-45.0, 0.0])
