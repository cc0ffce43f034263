from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.account import accountant, calibrate_noise
from sfumato.account.event import (
    Composed,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    PoissonSampled,
    Relation,
    Repeated,
)
from sfumato.errors import BadValue, CannotAccount

SHAPES: dict[str, Callable[[float], Event]] = {
    "poisson": lambda z: PoissonSampled(0.05, GaussianEvent(z)),
    "poisson replace": lambda z: PoissonSampled(0.05, GaussianEvent(z / 2), Relation.REPLACE),
    "fixed": lambda z: FixedSizeSampled(0.05, GaussianEvent(z / 2)),
    "participation": lambda z: Mixture(0.3, Repeated(PoissonSampled(0.1, GaussianEvent(z)), 5)),
    "laplace": lambda z: PoissonSampled(0.05, LaplaceEvent(z)),
    "everyone": GaussianEvent,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("epsilon", "delta", "times"), [(0.1, 1e-6, 10), (2.0, 1e-5, 100), (30.0, 1e-3, 1)])
def test_the_target_is_met_and_not_wasted(shape: str, epsilon: float, delta: float, times: int) -> None:
    def event_of(noise: float) -> Event:
        return Repeated(SHAPES[shape](noise), times)

    noise = calibrate_noise(event_of, epsilon, delta)
    attained = accountant().epsilon(event_of(noise), delta)
    assert epsilon * (1 - 1e-3) <= attained <= epsilon


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.floats(0.01, 200.0), st.floats(1e-12, 0.1), st.floats(1e-3, 1.0), st.integers(1, 5000), st.floats(0.01, 100.0)
)
def test_any_target_from_any_guess(epsilon: float, delta: float, rate: float, times: int, guess: float) -> None:
    counted = 0

    def event_of(noise: float) -> Event:
        nonlocal counted
        counted += 1
        return Repeated(PoissonSampled(rate, GaussianEvent(noise)), times)

    noise = calibrate_noise(event_of, epsilon, delta, guess=guess)
    attained = accountant().epsilon(event_of(noise), delta)
    assert attained <= epsilon
    assert attained >= epsilon * (1 - 1e-3) or epsilon < 0.05
    assert counted < 40


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_a_target_that_is_none_is_refused(epsilon: float) -> None:
    with pytest.raises(BadValue, match="epsilon="):
        calibrate_noise(GaussianEvent, epsilon, 1e-5)


def test_a_target_that_any_noise_meets_is_told_as_such() -> None:
    with pytest.raises(CannotAccount, match=r"is met by any noise.*a smaller epsilon"):
        calibrate_noise(lambda z: Repeated(PoissonSampled(1e-9, GaussianEvent(z)), 100), 1.0, 1e-6)


def test_a_target_below_what_is_already_spent_is_refused_with_the_numbers() -> None:
    spent = PoissonSampled(0.5, GaussianEvent(0.5))
    with pytest.raises(CannotAccount, match="cannot be met"):
        calibrate_noise(lambda z: Composed((spent, PoissonSampled(0.5, GaussianEvent(z)))), 0.5, 1e-5)
