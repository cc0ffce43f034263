"""Numbers that were printed and false, because a fact of privacy had a second source. Each was red before it was mended."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch
from typer.testing import CliRunner

from sfumato import (
    AddNoise,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    HelperBlend,
    NoiseShare,
    PerClient,
    PostProcess,
    SecureSum,
    Unit,
)
from sfumato.account.event import FixedSizeSampled, GaussianEvent, Mixture, Relation
from sfumato.claim import Claim
from sfumato.commands.app import app
from sfumato.errors import UnsoundRound
from sfumato.pieces.clip import Clip
from sfumato.pieces.mean import RealisedMean
from sfumato.round import Round
from tests.helpers import dp_round


def test_zero_out_costs_one_norm_where_the_cohort_is_seen_and_two_where_it_is_not() -> None:
    """The cohort is the same in both worlds, so noise at the client hides one norm; `account` and the derivation agree."""
    sample = FixedSize(50, Relation.ZERO_OUT)
    seen = dp_round(sample=sample, client=(Clip(1.0), AddNoise(Gaussian(1.5))), server=())
    assert seen.derive(population=1000, dimension=5).primary.world == Mixture(50 / 999, GaussianEvent(1.5))
    hidden = dp_round(sample=sample).derive(population=1000, dimension=5).primary.world
    assert isinstance(hidden, FixedSizeSampled) and hidden.relation is Relation.REPLACE
    assert hidden.event == GaussianEvent(0.5)
    words = "--noise gaussian:1.5 --sample fixed:50/1000 --rounds 10 --delta 1e-5 --noise-at client --relation zero-out"
    answer = json.loads(CliRunner().invoke(app, ["account", *words.split(), "--json"]).output)
    assert answer["epsilon"] == pytest.approx(4.00, abs=0.005)


def test_a_floor_of_replies_is_refused_under_add_remove_only() -> None:
    """A client that drops out whenever it is drawn changes the number of shares, and so the noise's energy (R3)."""
    shares = (Clip(1.0), NoiseShare(Gaussian(4.0), 19))

    def round(relation: Relation) -> Round:
        return dp_round(sample=FixedSize(50, relation), client=shares, channel=SecureSum(smallest=20), server=())

    with pytest.raises(UnsoundRound, match="drops out whenever it is drawn"):
        round(Relation.ADD_REMOVE)
    for relation, ratio in ((Relation.REPLACE, 2.0), (Relation.ZERO_OUT, 4.0)):
        proof = round(relation).derive(population=201, dimension=5).primary
        assert proof.world == Mixture(50 / 200, GaussianEvent(ratio)) == proof.server


@dataclass(frozen=True)
class Boasting:
    """A piece from outside that says it pays."""

    inner: DpSgd

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def train(self, task: object) -> torch.Tensor:
        return self.inner.train(task)  # type: ignore[arg-type]

    def carry(self, claim: Claim) -> Claim:
        return self.inner.carry(claim)


def test_a_foreign_piece_is_named_however_deep_it_lies() -> None:
    steps = DpSgd(steps=2, batch=FixedSize(3), records=9)
    local = PerClient(steps, {1: Boasting(steps)})  # type: ignore[arg-type]
    round = Round(sample=Everyone(), local=local, aggregate=RealisedMean(), unit=Unit.RECORD)
    assumed = round.derive(population=4, dimension=5).primary.assumptions
    assert any(words.startswith("as stated by") and "Boasting" in words for words in assumed)


def test_a_function_after_the_noise_is_an_assumption() -> None:
    server = (AddNoise(Gaussian(1.0)), PostProcess(torch.neg))
    assumed = dp_round(server=server).derive(population=9, dimension=5).primary.assumptions
    assert any("PostProcess" in words for words in assumed)


def test_the_sensitivity_that_is_shown_is_the_one_that_is_priced() -> None:
    """With personal models a fixed size is priced as if its cohort were seen, where a zeroed row moves the sum by itself."""
    round = dp_round(sample=FixedSize(2, Relation.ZERO_OUT), personal=HelperBlend(0.1))
    proof = round.derive(population=9, dimension=5).primary
    assert isinstance(proof.world, Mixture) and isinstance(proof.world.event, GaussianEvent)
    assert proof.stddev is not None and proof.sensitivity is not None
    assert proof.world.event.ratio == pytest.approx(proof.stddev / proof.sensitivity)
