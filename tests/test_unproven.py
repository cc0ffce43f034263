"""What is said of a round that could not be proven: the paper's own number, or that it is ours for the paper's event."""

from __future__ import annotations

import pytest

from sfumato import Unproven, recipes
from sfumato.account import accountant
from sfumato.account.event import GaussianEvent, Repeated
from sfumato.unproven import BY_EVENT, BY_FORMULA, claims
from tests.helpers import dp_round


@pytest.mark.parametrize(("rounds", "epsilon"), [(200, 8.513), (300, 10.795)])
def test_dp_fedsam_claims_what_its_equations_say(rounds: int, epsilon: float) -> None:
    """Equations (16) and (17) at continuous orders: not 9.373 after 300 rounds, which is the exact price of another sampler."""
    options = {"mask": "published", "sample": "poisson:0.1", "noise_multiplier": 0.95, "clip": 0.2}
    round = recipes.build("dp-fedsam-top-k", 500, options)
    found = claims(round, round.derive(population=500, dimension=100), rounds, 1 / 500)
    assert found["claimed_epsilon"] == pytest.approx(epsilon, abs=5e-4) and found["claimed_by"] == BY_FORMULA


def test_an_event_is_priced_by_our_accountant_and_says_so() -> None:
    event = GaussianEvent(3.0)
    round = dp_round(unproven=Unproven("a paper", "a step", event))
    found = claims(round, round.derive(population=9, dimension=9), 4, 1e-5)
    assert (
        found["claimed_epsilon"] == accountant().epsilon(Repeated(event, 4), 1e-5) and found["claimed_by"] == BY_EVENT
    )
    assert claims(round, round.derive(population=9, dimension=9), 0, 1e-5)["claimed_epsilon"] is None


def test_where_nothing_is_claimed_nobody_is_named() -> None:
    round = dp_round(unproven=True)
    found = claims(round, round.derive(population=9, dimension=9), 4, 1e-5)
    assert found["claimed_epsilon"] is None and found["claimed_by"] == ""
