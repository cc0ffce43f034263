from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.account import Accountant, accountant
from sfumato.account.event import (
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    Relation,
    Repeated,
)

from .laws import ACCOUNTANT_LAWS, CLOSE, DELTA, EVENTS, check_accountant


@pytest.mark.parametrize("name", ["auto", "pld", "rdp"])
@pytest.mark.parametrize("law", ACCOUNTANT_LAWS, ids=lambda law: law.__name__)
def test_law(name: str, law: Callable[[Accountant], None]) -> None:
    law(accountant(name))


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_rdp_is_not_below_pld(event: Event) -> None:
    for times, delta in ((1, 1e-3), (30, 1e-5), (3000, 1e-8)):
        many = Repeated(event, times)
        assert accountant("rdp").epsilon(many, delta) >= accountant("pld").epsilon(many, delta) * (1 - CLOSE)


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_auto_is_never_above_the_others(event: Event) -> None:
    many = Repeated(event, 25)
    assert accountant().epsilon(many, DELTA) <= accountant("pld").epsilon(many, DELTA) * (1 + 1e-12)


rates = st.floats(1e-4, 1.0)
ratios = st.floats(0.3, 20.0)
counts = st.integers(1, 2000)
deltas = st.floats(1e-12, 0.1)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(rates, ratios, counts, deltas, st.sampled_from([0.7, 0.9, 0.99]))
def test_monotone_in_everything(rate: float, ratio: float, times: int, delta: float, less: float) -> None:
    price = accountant("pld")
    for sampler in (PoissonSampled, FixedSizeSampled):

        def cost(
            rate: float = rate, ratio: float = ratio, times: int = times, delta: float = delta, sampler: type = sampler
        ) -> float:
            return price.epsilon(Repeated(sampler(rate, GaussianEvent(ratio)), times), delta)

        here = cost() * (1 + CLOSE) + 1e-9
        assert cost(rate=rate * less) <= here
        assert cost(ratio=ratio / less) <= here
        assert cost(times=max(1, int(times * less))) <= here
        assert cost(delta=min(delta / less, 0.5)) <= here


@settings(max_examples=15, deadline=None, derandomize=True)
@given(rates, ratios, counts, deltas)
def test_replace_costs_at_least_what_half_the_distance_costs_under_add_remove(
    rate: float, ratio: float, times: int, delta: float
) -> None:
    """Replacing a client moves the sum twice as far as adding it: never cheaper."""
    price = accountant("pld")
    present = price.epsilon(Repeated(PoissonSampled(rate, GaussianEvent(ratio)), times), delta)
    swapped = price.epsilon(Repeated(PoissonSampled(rate, GaussianEvent(ratio / 2), Relation.REPLACE), times), delta)
    assert swapped >= present * (1 - CLOSE) - 1e-9


@dataclass(frozen=True)
class Broken:
    """A sound accountant with one mistake."""

    event: Callable[[Event], Event] = lambda event: event
    epsilon_factor: float = 1.0
    inner: Accountant = field(default_factory=lambda: accountant("pld"))
    name: str = "broken"

    def epsilon(self, event: Event, delta: float) -> float:
        return self.epsilon_factor * self.inner.epsilon(self.event(event), delta)

    def delta(self, event: Event, epsilon: float) -> float:
        return self.inner.delta(event, epsilon)

    def tradeoff(self, event: Event, false_positive_rate: float) -> float:
        return self.inner.tradeoff(event, false_positive_rate)


def _drop_the_count(event: Event) -> Event:
    return event.event if isinstance(event, Repeated) else event


def _forget_the_square_root(event: Event) -> Event:
    return (
        GaussianEvent(event.event.ratio)
        if isinstance(event, Repeated) and isinstance(event.event, GaussianEvent)
        else event
    )


def _sample_twice(event: Event) -> Event:
    if isinstance(event, Repeated) and isinstance(event.event, PoissonSampled | FixedSizeSampled):
        return Repeated(type(event.event)(event.event.rate**2, event.event.event), event.times)
    return event


def _noise_upside_down(event: Event) -> Event:
    if isinstance(event, Repeated) and isinstance(event.event, GaussianEvent):
        return Repeated(GaussianEvent(1 / event.event.ratio), event.times)
    return event


@pytest.mark.parametrize(
    "broken",
    [
        Broken(_drop_the_count),
        Broken(_forget_the_square_root),
        Broken(_sample_twice),
        Broken(_noise_upside_down),
        Broken(epsilon_factor=0.99),
        Broken(epsilon_factor=1.01),
    ],
    ids=["drops the count", "no square root", "samples twice", "noise upside down", "too low", "too high"],
)
def test_the_laws_catch_a_broken_accountant(broken: Accountant) -> None:
    with pytest.raises(AssertionError):
        check_accountant(broken)


def test_an_accountant_that_obeys_passes() -> None:
    check_accountant(Broken())


def test_pure_dp_of_laplace_is_reached_and_not_passed() -> None:
    """Laplace noise is 1/ratio-DP at delta = 0, so no delta can cost more."""
    for ratio, times in ((2.0, 1), (0.5, 3), (10.0, 20)):
        epsilon = accountant("pld").epsilon(Repeated(LaplaceEvent(ratio), times), 1e-30)
        assert epsilon <= times / ratio * (1 + 1e-4)
        assert math.isclose(epsilon, times / ratio, rel_tol=1e-3) or times > 3
