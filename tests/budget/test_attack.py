"""Explicit attacks on small rounds in which clients have norms and rates of their own, and the laws of the pieces."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch

from sfumato import (
    AddNoise,
    Clip,
    ClipPerClient,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    Mean,
    PerClient,
    Plan,
    Poisson,
    PoissonPerClient,
    Population,
    Presence,
    Relation,
    Round,
    regression,
)  # fmt: skip
from sfumato.account.event import ByClient, GaussianEvent, Nothing
from sfumato.claim import Claim
from sfumato.engine.simulate import simulate
from sfumato.local.task import Task
from sfumato.pieces.protocol import LocalPiece
from sfumato.testing import check_piece, check_sampler
from tests.attacks.semantics import Chosen
from tests.budget.laws import check_largest, check_no_attack, check_own_noise

NORMS = ClipPerClient(Clip(1.0), {0: Clip(0.3), 2: Clip(0.6)})
RATES = {0: Presence(0.8), 2: Presence(0.15)}


def round_of(sample: Any, norms: ClipPerClient = NORMS, noise: float = 1.2) -> Round:
    server = (AddNoise(Gaussian(noise)),)
    return Round(sample=sample, local=Chosen(), client=(norms,), aggregate=Mean(2.0), server=server)


@pytest.mark.parametrize("relation", list(Relation))
def test_own_norms_and_rates_under_an_explicit_attack(relation: Relation) -> None:
    check_no_attack(round_of(PoissonPerClient(Presence(0.4), RATES, relation)), 4, 1, exact=True)
    check_no_attack(round_of(Everyone(relation)), 3, 1, exact=True)


@pytest.mark.parametrize("relation", [Relation.REPLACE, Relation.ADD_REMOVE])
@pytest.mark.parametrize("own", [0.02, 0.5])
def test_a_client_that_displaces_another_under_an_explicit_attack(relation: Relation, own: float) -> None:
    """Its own norm and the other's add up, however small its own is."""
    check_no_attack(round_of(FixedSize(2, relation, curious=0), ClipPerClient(Clip(1.0), {1: Clip(own)})), 4, 1)


def test_the_pieces_do_what_they_state() -> None:
    check_piece(NORMS)
    check_piece(ClipPerClient(Clip(1.0, order=1), {3: Clip(0.1, order=1)}))
    check_sampler(PoissonPerClient(Presence(0.2), {0: Presence(0.9), 1: Presence(0.05), 5: Presence(0.5, rounds=1500)}))
    check_own_noise(OWN, 4)


OWN = PerClient(DpSgd(2, Poisson(0.5), 8, law=Gaussian(1.0)), {1: DpSgd(2, Poisson(0.5), 8, law=Gaussian(3.0))})


@dataclass(frozen=True)
class OneAxisEach(LocalPiece):
    """Every client's row is huge, along an axis of its own."""

    def train(self, task: Task) -> torch.Tensor:
        return 1e3 * torch.eye(task.layout.dimension)[list(task.ids)]

    def carry(self, claim: Claim) -> Claim:
        return claim


@pytest.mark.parametrize("plan", [Plan(), Plan("stacked", 3), Plan(workers=2)], ids=["loop", "stacked", "workers"])
def test_the_engine_clips_each_by_its_own_norm_until_its_last_round(plan: Plan) -> None:
    sample = PoissonPerClient(Presence(1.0), {1: Presence(1.0, rounds=1)})
    round = Round(
        sample=sample, local=OneAxisEach(), client=(NORMS,), aggregate=Mean(2.0), server=(AddNoise(Gaussian(1e-3)),)
    )
    data = [(torch.ones(2, 4), torch.zeros(2, 1))] * 4
    run = simulate(round, Population.from_list(data), torch.nn.Linear(4, 1), regression(), rounds=2, seed=0, plan=plan)
    params = [run.start.params, *(progress.params for progress in run)]
    moved = [2.0 * (after - before)[:4] for before, after in pairwise(params)]
    assert torch.allclose(moved[0], torch.tensor([0.3, 1.0, 0.6, 1.0]), atol=0.01)
    assert torch.allclose(moved[1], torch.tensor([0.3, 0.0, 0.6, 1.0]), atol=0.01)


def test_a_round_after_the_last_one_costs_nothing() -> None:
    sample = PoissonPerClient(Presence(1.0), {1: Presence(1.0, rounds=2)}, Relation.ZERO_OUT)
    proof = round_of(sample).derive(population=4, dimension=3).primary
    for number, stopped in ((0, False), (1, False), (2, True), (9, True)):
        event = proof.at(number)
        assert isinstance(event, ByClient)
        own = next(own for who, own in event.groups if 1 in who) if stopped else event
        assert (own == Nothing()) == stopped
        assert proof.at(number) == event
    check_largest(proof.after(5), 4, 1e-5)
    assert any(isinstance(part, GaussianEvent) for part in proof.after(5).walk())
