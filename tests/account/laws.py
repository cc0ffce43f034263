"""What every accountant obeys. Each law takes an accountant and fails with an assertion; `ACCOUNTANT_LAWS` lists them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from sfumato.account.event import (
    Composed,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    NonPrivate,
    Nothing,
    PoissonSampled,
    PureEvent,
    Relation,
    Repeated,
    StaircaseEvent,
    compose,
)
from sfumato.account.protocol import Accountant

DELTA = 1e-5
CLOSE = 3e-4  # twice the precision that an accountant promises
EVENTS: tuple[Event, ...] = (
    PoissonSampled(0.05, GaussianEvent(1.0)),
    PoissonSampled(0.05, GaussianEvent(1.0), Relation.REPLACE),
    FixedSizeSampled(0.05, GaussianEvent(1.0)),
    FixedSizeSampled(0.05, GaussianEvent(1.0), Relation.ADD_REMOVE),
    Mixture(0.2, GaussianEvent(2.0)),
    Mixture(0.3, Repeated(FixedSizeSampled(0.05, GaussianEvent(1.5)), 5)),
    LaplaceEvent(3.0),
    PoissonSampled(0.1, LaplaceEvent(1.0)),
    PureEvent(0.5),
    PoissonSampled(0.1, StaircaseEvent(1.0, 0.3)),
    GaussianEvent(3.0),
)


def nothing_costs_nothing(price: Accountant) -> None:
    for event in (Nothing(), Composed(()), Repeated(Nothing(), 9)):
        assert price.epsilon(event, DELTA) == 0
        assert price.delta(event, 0.0) == 0
        assert price.tradeoff(event, 0.3) == 0.7


def non_private_costs_everything(price: Accountant) -> None:
    for event in (NonPrivate("why"), Composed((GaussianEvent(1.0), NonPrivate())), Mixture(0.1, NonPrivate())):
        assert math.isinf(price.epsilon(event, DELTA))
        assert price.delta(event, 5.0) == 1
        assert price.tradeoff(event, 0.3) == 0


def repeating_is_composing(price: Accountant, events: tuple[Event, ...] = EVENTS) -> None:
    for event in events:
        six = price.epsilon(Repeated(event, 6), DELTA)
        for same in (Repeated(Repeated(event, 2), 3), Composed((event,) * 6), compose(*[event] * 6)):
            assert math.isclose(price.epsilon(same, DELTA), six, rel_tol=CLOSE)
        assert math.isclose(price.epsilon(compose(*[Repeated(event, 3)] * 2), DELTA), six, rel_tol=CLOSE)


def more_rounds_cost_more(price: Accountant, events: tuple[Event, ...] = EVENTS) -> None:
    for event in events:
        spent = [price.epsilon(Repeated(event, times), DELTA) for times in (1, 2, 5, 20, 200)]
        assert all(math.isfinite(one) and one >= 0 for one in spent)
        assert all(more > less * (1 - CLOSE) for less, more in pairwise(spent))
        assert spent[-1] > 2 * spent[1]


def more_noise_costs_less(price: Accountant) -> None:
    for wrap in (
        GaussianEvent,
        lambda ratio: PoissonSampled(0.05, GaussianEvent(ratio)),
        lambda ratio: FixedSizeSampled(0.05, GaussianEvent(ratio)),
    ):
        spent = [price.epsilon(Repeated(wrap(ratio), 50), DELTA) for ratio in (0.5, 0.7, 1.0, 2.0, 5.0)]
        assert all(more < less for less, more in pairwise(spent))


def a_larger_rate_costs_more(price: Accountant) -> None:
    for sampler in (PoissonSampled, FixedSizeSampled, Mixture):
        spent = [
            price.epsilon(Repeated(sampler(rate, GaussianEvent(1.0)), 50), DELTA)
            for rate in (0.001, 0.01, 0.1, 0.5, 1.0)
        ]
        assert all(less < more * (1 + CLOSE) for less, more in pairwise(spent))
        assert spent[-1] > 3 * spent[0]


def epsilon_and_delta_are_inverse(price: Accountant, events: tuple[Event, ...] = EVENTS) -> None:
    for event in events:
        many = Repeated(event, 40)
        epsilon = price.epsilon(many, DELTA)
        assert price.delta(many, epsilon * (1 + CLOSE)) <= DELTA * (1 + 1e-3)
        assert price.delta(many, epsilon * (1 - 5 * CLOSE)) >= DELTA
        deltas = [price.delta(many, at) for at in (0.0, epsilon / 2, epsilon, 2 * epsilon)]
        assert all(less <= more for more, less in pairwise(deltas))


def a_trade_off_is_a_trade_off(price: Accountant, events: tuple[Event, ...] = EVENTS) -> None:
    for event in events:
        many = Repeated(event, 10)
        errors = [price.tradeoff(many, rate / 10) for rate in range(11)]
        assert all(0 <= error <= 1 - rate / 10 + 1e-12 for rate, error in enumerate(errors))
        assert all(after <= before for before, after in pairwise(errors))
        assert all(errors[k - 1] + errors[k + 1] >= 2 * errors[k] - 2e-5 for k in range(1, 10))
        epsilon, delta = 1.0, price.delta(many, 1.0)
        floor = max(0.0, 1 - delta - math.exp(epsilon) * 0.1)
        assert errors[1] >= floor - 2e-5


def it_is_not_below_the_exact_value(price: Accountant) -> None:
    from sfumato.account.gdp import gdp_epsilon

    for ratio, times in ((1.0, 1), (5.0, 100), (0.3, 2), (40.0, 1000)):
        exact = gdp_epsilon(math.sqrt(times) / ratio, DELTA)
        assert price.epsilon(Repeated(GaussianEvent(ratio), times), DELTA) >= exact * (1 - 1e-9)


ACCOUNTANT_LAWS: tuple[Callable[[Accountant], None], ...] = (
    nothing_costs_nothing,
    non_private_costs_everything,
    repeating_is_composing,
    more_rounds_cost_more,
    more_noise_costs_less,
    a_larger_rate_costs_more,
    epsilon_and_delta_are_inverse,
    a_trade_off_is_a_trade_off,
    it_is_not_below_the_exact_value,
)


def check_accountant(price: Accountant) -> None:
    for law in ACCOUNTANT_LAWS:
        law(price)
