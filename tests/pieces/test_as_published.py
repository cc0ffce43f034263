"""Laws as UDP-FL publishes them: refused, run unproven, and shown with what the same noise costs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sfumato import (  # fmt: skip
    AddNoise,
    Clip,
    DpSgd,
    Everyone,
    Gaussian,
    Mean,
    PerClient,
    Poisson,
    RealisedMean,
    Round,
    Sgd,
    Unit,
    Unproven,
    UnsoundRound,
    classification,
    simulate,
)
from sfumato.account.event import GaussianEvent, LaplaceEvent, PoissonSampled, Repeated
from sfumato.account.papers.udp_fl import as_published
from sfumato.pieces.law_names import AS_PUBLISHED, law_named
from sfumato.unproven import claims, known_of
from tests.helpers import linear, made_up_population

NOISE = 0.52825  # by the formula for one coordinate: epsilon 8 after 300 steps of rate 0.05 at delta 1e-5


def rounds_of(name: str) -> list[dict[str, Any]]:
    law, order = law_named(name, NOISE)
    steps = DpSgd(1, Poisson(0.05), 100, law=law, order=order)
    return [
        {"sample": Everyone(), "local": steps, "aggregate": RealisedMean(), "unit": Unit.RECORD},
        {"sample": Everyone(), "local": PerClient(steps, {1: steps}), "aggregate": RealisedMean(), "unit": Unit.RECORD},
        {
            "sample": Poisson(0.05),
            "local": Sgd(lr=0.1, epochs=1),
            "client": (Clip(1.0, order),),
            "aggregate": Mean(5.0),
            "server": (AddNoise(law),),
        },
    ]


@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_they_are_refused_in_every_round(name: str) -> None:
    for slots in rounds_of(name):
        with pytest.raises(UnsoundRound, match="one coordinate"):
            Round(**slots)


def test_the_laplace_that_says_8_has_the_gaussian_limit_26() -> None:
    for slots in rounds_of("laplace-as-published"):
        round = Round(**slots, unproven=Unproven("UDP-FL", "one coordinate"))
        derivation = round.derive(population=100, dimension=7850)
        assert derivation.primary.stddev is not None or isinstance(round.local, PerClient)
        said = claims(round, derivation, 300, 1e-5)
        assert said["claimed_epsilon"] == pytest.approx(8.0, rel=1e-3)
        proven, limit = said["really"].values()
        assert limit == pytest.approx(26.1, rel=1e-3) and limit < proven < 36.0


def test_the_staircase_on_each_coordinate_costs_thousands() -> None:
    for slots in rounds_of("staircase-as-published"):
        round = Round(**slots, unproven=True)
        said = claims(round, round.derive(population=100, dimension=10_000), 300, 1e-5)
        (proven,) = said["really"].values()
        assert said["claimed_epsilon"] < 10.0 and 1e3 < proven < math.inf


def test_what_is_known_is_walked_as_any_other_round() -> None:
    slots = rounds_of("laplace-as-published")[2]
    known = known_of(Round(**slots, unproven=True), population=100, dimension=50)
    true, _ = law_named("laplace-l2", NOISE)
    honest = Round(**{**slots, "server": (AddNoise(true),)}).derive(population=100, dimension=50).primary.world
    assert known["proven"] == honest and as_published(Repeated(honest, 3)) == Repeated(known["claimed"], 3)
    assert {type(one.event) for one in known.values() if isinstance(one, PoissonSampled)} >= {
        LaplaceEvent,
        GaussianEvent,
    }
    usual = Round(**{**slots, "server": (AddNoise(Gaussian(1.0)),)}, unproven=True)
    assert known_of(usual, population=100, dimension=50) == {}


@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_a_run_shows_the_claim_and_the_truth(name: str) -> None:
    people = made_up_population([100, 100])
    for slots in rounds_of(name):
        run = simulate(Round(**slots, unproven=True), people, linear(), classification(3), rounds=2, seed=0)
        *_, last = run
        found = last.guarantee(1e-5)
        assert found.epsilon is None and "this very noise" in found.unproven
