"""Paid screening: what it states against exact privacy profiles of small cases, and what it draws."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from sfumato import (
    AddNoise,
    Clip,
    Everyone,
    FixedSize,
    Gaussian,
    Poisson,
    Population,
    Queries,
    Ridge,
    Round,
    Screened,
    Student,
    Sum,
    Votes,
    classification,
    simulate,
)  # fmt: skip
from sfumato.account import accountant
from sfumato.account.event import GaussianEvent, PoissonSampled, Relation, Unit
from sfumato.account.gdp import gdp_delta
from sfumato.calibration import calibrate
from sfumato.claim import Claim
from sfumato.engine.checkpoint import Checkpoint
from sfumato.errors import BadValue, UnsoundRound
from sfumato.key import Key
from sfumato.pieces.context import Context
from sfumato.testing.noise import check_law
from sfumato.update import Layout
from tests.voting.test_student import public
from tests.voting.test_votes import Labels


def screening(piece: Any, queries: int = 500, **changed: Any) -> Round:
    slots: dict[str, Any] = {"sample": Everyone(), "aggregate": Sum(), "server": (piece,)}
    return Round(local=Votes(Labels(), Queries(None, queries), 10), **{**slots, **changed})


def mu_of(round: Round, unit: Unit = Unit.CLIENT) -> float:
    event = round.derive(population=100, dimension=7).units[unit].world
    assert isinstance(event, GaussianEvent)
    return 1.0 / event.ratio


def test_the_cost_is_that_of_both_noises() -> None:
    piece = Screened(40.0, 60.0, Gaussian(25.0 / math.sqrt(500)), 300)
    expected = math.sqrt(500 / 40.0**2 + 300 / 25.0**2)
    assert mu_of(screening(piece)) == pytest.approx(expected)
    assert mu_of(screening(piece), Unit.RECORD) == pytest.approx(math.sqrt(2.0) * expected)
    proof = screening(piece).derive(population=100, dimension=7).primary
    assert proof.stddev == pytest.approx(25.0)
    assert proof.sensitivity == pytest.approx(25.0 * expected)
    all_answered = Screened(1e9, 60.0, Gaussian(25.0 / math.sqrt(500)), 500)
    assert mu_of(screening(all_answered)) == pytest.approx(mu_of(screening(AddNoise(Gaussian(25.0 / math.sqrt(500))))))


def test_calibration_scales_both_noises() -> None:
    begun = Screened(40.0, 60.0, Gaussian(25.0 / math.sqrt(500)), 300)
    found = calibrate(screening(begun), epsilon=1.5, delta=1e-3, rounds=1, population=100)
    (piece,) = found.server
    assert isinstance(piece, Screened)
    assert piece.screen / begun.screen == pytest.approx(piece.answer.noise_multiplier / begun.answer.noise_multiplier)
    cost = accountant("auto").epsilon(found.derive(population=100, dimension=7).primary.world, 1e-3)
    assert 1.5 * 0.999 <= cost <= 1.5


def exact_delta(
    epsilon: float, first: np.ndarray, second: np.ndarray, screen: float, answer: float, cut: float
) -> float:
    """The profile between two worlds of queries with one count each, of which the first above the threshold is answered.

    A branch says which query that is, with a chance in each world; its answer is then a Gaussian. The positive part of
    P phi(x) - e^epsilon Q phi(x - m) integrates to P delta_m(epsilon + log(Q / P)).
    """
    stays = [log_ndtr((cut - world) / screen) for world in (first, second)]
    passes = [log_ndtr((world - cut) / screen) for world in (first, second)]
    total = max(0.0, math.exp(stays[0].sum()) - math.exp(epsilon + stays[1].sum()))
    for query in range(len(first)):
        here, there = (stay[:query].sum() + one[query] for stay, one in zip(stays, passes, strict=True))
        moved = abs(first[query] - second[query]) / answer
        total += math.exp(here) * _delta(moved, epsilon + there - here)
    return total


def _delta(mu: float, epsilon: float) -> float:
    """Also for a negative epsilon."""
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def worst_excess(stated: float, screen: float = 1.3, answer: float = 1.0) -> float:
    """How far exact profiles lie above that of a stated mu, over many places of three counts that one unit moves by 1."""
    worst = -math.inf
    for cut in np.linspace(-3.0, 4.0, 15):
        for signs in ((1, 1, 1), (1, -1, 1), (-1, -1, -1), (1, 1, -1)):
            for start in (np.zeros(3), np.array([0.0, 1.0, 2.0]), np.array([2.0, -1.0, 0.0])):
                for epsilon in (0.1, 0.7, 2.0):
                    found = exact_delta(epsilon, start, start + np.array(signs), screen, answer, cut)
                    worst = max(worst, found - gdp_delta(stated, epsilon))
    return worst


def test_no_exact_profile_is_above_what_is_stated_and_unpaid_screening_would_be_found() -> None:
    """Sabotage: without the looks, or with looks that only the answered queries pay, some profile is above."""
    claim = replace(Claim(Unit.CLIENT, Relation.ADD_REMOVE, 9, 3).bounded(l2=math.sqrt(3), l1=3.0), parts=3)
    claim = replace(claim, aggregated=True, sampling=Everyone())
    event = Screened(1.3, 0.0, Gaussian(1.0 / math.sqrt(3)), 1).carry(claim).world
    assert isinstance(event, GaussianEvent)
    assert worst_excess(1.0 / event.ratio) <= 1e-12
    assert worst_excess(1.0) > 0.05
    assert worst_excess(math.sqrt(1.0 + 1.0 / 1.3**2)) > 1e-3


def drawn(piece: Screened, votes: torch.Tensor, seed: int = 0) -> torch.Tensor:
    queries, classes = votes.shape
    claim = Claim(Unit.CLIENT, Relation.ADD_REMOVE, 9, votes.numel()).bounded(l2=math.sqrt(queries), l1=float(queries))
    layout = Layout(("weight",), (torch.Size([votes.numel()]),))
    context = Context(0, layout, replace(claim, parts=queries, aggregated=True), Key.from_seed(seed))
    return piece(votes.reshape(-1), context).reshape(queries, classes)


def test_both_noises_are_those_that_are_accounted() -> None:
    votes = torch.zeros(4000, 5)
    votes[:, 3] = 7.0
    answers = drawn(Screened(2.0, -math.inf, Gaussian(3.0 / math.sqrt(4000)), 4000), votes)
    check_law((answers - votes).double().numpy().ravel(), 3.0)
    quiet = Gaussian(1e-6 / math.sqrt(4000))
    for above in (-2.0, 0.0, 1.5):  # how many pass tells the deviation of the screening noise, not of 2/3 or 3/2 of it
        passed = (drawn(Screened(2.0, 7.0 + above, quiet, 4000), votes) != 0).any(1).double().mean().item()
        assert passed == pytest.approx(norm.sf(above / 2.0), abs=5 * 0.5 / math.sqrt(4000))
        for wrong in (2 / 3, 3 / 2):
            assert above == 0.0 or abs(passed - norm.sf(above / (2.0 * wrong))) > 5 * 0.5 / math.sqrt(4000)


def test_at_most_so_many_are_answered_the_first_that_pass() -> None:
    votes = torch.tensor([[9.0, 0.0], [1.0, 2.0], [0.0, 9.0], [9.0, 1.0]])
    answers = drawn(Screened(1e-6, 5.0, Gaussian(1e-6), 2), votes)
    assert (answers != 0).any(1).tolist() == [True, False, True, False]
    torch.testing.assert_close(answers[[0, 2]], votes[[0, 2]], rtol=0, atol=1e-4)


def test_what_is_refused_and_what_is_not() -> None:
    piece = Screened(40.0, 60.0, Gaussian(1.0), 300)
    for refused, why in (
        ({"queries": 299}, "up to 300"),
        ({"client": (Clip(1.0),)}, "has 1 here"),
        ({"sample": Poisson(0.1, Relation.REPLACE)}, "three worlds"),
    ):
        with pytest.raises(UnsoundRound, match=why):
            screening(piece, **refused)
    sampled = screening(piece, sample=Poisson(0.1)).derive(population=100, dimension=7).primary.world
    assert sampled == PoissonSampled(0.1, screening(piece).derive(population=100, dimension=7).primary.world)
    screening(piece, sample=FixedSize(10))
    for wrong in ({"screen": 0.0}, {"most": 0}, {"threshold": math.nan}):
        with pytest.raises(BadValue):
            replace(piece, **wrong)


def test_a_run_asks_on_where_nobody_was_answered(tmp_path: Path) -> None:
    """Four of six clients agree on every query, so all pass, and the cap leaves two of five a round with a label."""
    queries = Queries(public(10), 5)
    piece = Screened(1e-3, 3.0, Gaussian(1e-3), 2)
    round = Round(
        sample=Everyone(),
        local=Votes(Labels(), queries, 3),
        aggregate=Sum(),
        server=(piece,),
        optimizer=Student(queries, Ridge()),
    )
    crowd = [(torch.zeros(1, 4), torch.tensor([one // 4])) for one in range(6)]
    for _ in simulate(
        round, Population.from_list(crowd), "logistic", classification(3), rounds=2, seed=0, folder=tmp_path / "run"
    ):
        pass
    last = Checkpoint.read(tmp_path / "run")
    assert last is not None
    assert last.state["asked"].tolist() == [1] * 10
    assert last.state["answered"].tolist() == [1, 1, 0, 0, 0] * 2
    assert last.state["votes"][[0, 1, 5, 6]].argmax(1).tolist() == [0] * 4
