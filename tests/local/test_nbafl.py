"""NbAFL as published: its noise by its formula, a run without an epsilon, and no way into a proven round."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sfumato import Everyone, Plan, RealisedMean, Relation, Round, Sgd, Unit, UnsoundRound, classification
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.local.nbafl import Nbafl, NbaflNoise, WithinBall
from sfumato.recipes import build
from sfumato.testing.noise import check_law
from sfumato.testing.piece import claim_for, context_for
from sfumato.unproven import BY_FORMULA, claims
from tests.helpers import linear, made_up_population


def test_the_noise_is_that_of_the_formula() -> None:
    setting = Nbafl(epsilon=4.0, delta=1e-3, norm=10.0, records=500, rounds=20, exposures=5, clients=9)
    factor = math.sqrt(2 * math.log(1250.0))
    assert setting.uplink == pytest.approx(factor * 5 * (2 * 10 / 500) / 4)
    assert setting.downlink == pytest.approx(2 * factor * 10 * math.sqrt(20**2 - 25 * 9) / (500 * 9 * 4))
    everyone = Nbafl(4.0, 1e-3, 10.0, 500, 20, 20, 9)
    assert everyone.downlink == 0.0
    claim = everyone.claimed
    for rounds in (1, 5, 20):  # the uplink noise, solved for epsilon: it grows with the number of messages
        assert claim.claimed_epsilon(rounds, 1e-3) == pytest.approx(factor * rounds * (2 * 10 / 500) / everyone.uplink)
    smaller = math.sqrt(2 * math.log(1.25e6)) * 20 * (2 * 10 / 500) / everyone.uplink
    assert claim.claimed_epsilon(20, 1e-3) == pytest.approx(4.0) and claim.claimed_epsilon(20, 1e-6) == pytest.approx(
        smaller
    )
    with pytest.raises(BadValue, match="at most rounds"):
        Nbafl(4.0, 1e-3, 10.0, 500, 5, 20, 9)


def test_it_trains_and_says_what_fails() -> None:
    people = made_up_population([9, 12, 8])
    round = build("nbafl", 3, {"claimed": 6.0, "records": 8, "uploads": 4, "norm": 0.5})
    run = simulate(round, people, linear(), classification(3), rounds=4, seed=0, plan=Plan())
    *_, progress = run
    assert progress.epsilon(1e-5) is None
    said = progress.guarantee(1e-5).unproven
    assert "NbAFL (Wei et al. 2020) claims epsilon 6 (the paper's own formula)" in said
    assert "a clipped model can move by twice the norm" in said


def test_the_claim_of_few_rounds_is_the_papers() -> None:
    """.267 after 5 of 150 rounds: what a calibrated Gaussian event would say, 1.149, is no formula of the paper."""
    round = build("nbafl", 10, {})
    found = claims(round, round.derive(population=10, dimension=100), 5, 1e-5)
    assert found["claimed_epsilon"] == pytest.approx(8 * 5 / 150) and found["claimed_by"] == BY_FORMULA


def test_models_lie_within_the_ball_and_messages_are_noised() -> None:
    people = made_up_population([9, 12, 8])
    local = WithinBall(Sgd(lr=5.0, epochs=3), 0.5)
    round = Round(sample=Everyone(), local=local, aggregate=RealisedMean(), unproven=True)
    *_, progress = simulate(round, people, linear(), classification(3), rounds=2, seed=0, plan=Plan("stacked", 2))
    assert 0.2 < float(progress.params.norm()) <= 0.5
    rows = torch.zeros(40, 1000)
    noise = NbaflNoise(0.3)
    client = noise(rows, context_for(rows, claim_for(1000)))
    check_law(client.double().numpy().ravel(), 0.3)
    assert np.abs(np.corrcoef(client.numpy())[0, 1:]).max() < 0.25


def test_no_proven_round_takes_it() -> None:
    with pytest.raises(UnsoundRound, match="2 norm / records"):
        Round(
            sample=Everyone(Relation.REPLACE), local=Sgd(lr=0.1, epochs=1), client=(NbaflNoise(1.0),),
            aggregate=RealisedMean(), unit=Unit.RECORD,
        )  # fmt: skip
    with pytest.raises(BadValue, match="radius"):
        WithinBall(Sgd(lr=0.1, epochs=1), 0.0)
