"""Building a round: what is proven, what is refused, and with which reason and fix."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from sfumato import (
    AddNoise,
    Clip,
    Everyone,
    FixedSize,
    Gaussian,
    Mean,
    Poisson,
    PostProcess,
    PublicData,
    RealisedMean,
    Records,
    Relation,
    Round,
    Sgd,
    Unit,
    UnsoundRound,
    WeightByExamples,
)  # fmt: skip
from sfumato.account.event import (
    Composed,
    CuriousDraws,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    Mixture,
    NonPrivate,
    PoissonSampled,
)
from sfumato.claim import Claim
from sfumato.errors import BadValue
from sfumato.pieces.protocol import ClientPiece
from sfumato.pieces.sampler import parse_sampler
from tests.helpers import dp_round, made_up_population

NOISE = AddNoise(Gaussian(1.1))


def world(round: Round, unit: Unit = Unit.CLIENT, population: int = 1000) -> Any:
    return rounded(round.derive(population=population, dimension=10).units[unit].world)


def rounded(event: Any) -> Any:
    """The event with its numbers rounded to twelve digits."""
    changed = {}
    for part in dataclasses.fields(event):
        value = getattr(event, part.name)
        changed[part.name] = float(f"{value:.12g}") if isinstance(value, float) else value
        if isinstance(value, Event):
            changed[part.name] = rounded(value)
    return type(event)(**changed)


def test_poisson_add_remove_costs_one_clip_norm() -> None:
    round = dp_round(sample=Poisson(0.05), server=(NOISE,))
    assert world(round) == PoissonSampled(0.05, GaussianEvent(1.1))


def test_poisson_replace_costs_two_clip_norms() -> None:
    round = dp_round(sample=Poisson(0.05, Relation.REPLACE), server=(NOISE,))
    assert world(round) == PoissonSampled(0.05, GaussianEvent(0.55), Relation.REPLACE)


def test_fixed_size_costs_two_clip_norms_under_both_relations() -> None:
    for relation in (Relation.REPLACE, Relation.ADD_REMOVE):
        found = world(dp_round(sample=FixedSize(50, relation), server=(NOISE,)))
        if relation is Relation.ADD_REMOVE:  # a curious client's own draw tells how many there are
            assert isinstance(found, Composed) and found.events[0] == CuriousDraws(50, 1000, 1)
            found = rounded(found.events[1])
        assert found == FixedSizeSampled(float(f"{50 / 999:.12g}"), GaussianEvent(0.55), relation)


def test_everyone_is_not_amplified() -> None:
    assert world(dp_round(sample=Everyone(), server=(NOISE,))) == GaussianEvent(1.1)
    assert world(dp_round(sample=Everyone(Relation.REPLACE), server=(NOISE,))) == GaussianEvent(0.55)


def test_the_divisor_and_the_clip_do_not_change_the_ratio() -> None:
    for clip, over in ((0.3, 50.0), (7.0, 3.0), (1e-3, 1e4)):
        proof = dp_round(client=(Clip(clip),), aggregate=Mean(over)).derive(population=100, dimension=5).primary
        assert rounded(proof.world) == PoissonSampled(0.5, GaussianEvent(1.0))
        assert proof.stddev == pytest.approx(clip / over)
        assert proof.sensitivity == pytest.approx(clip / over)


def test_one_record_of_a_client_moves_the_row_twice_as_far() -> None:
    assert world(dp_round(server=(NOISE,)), Unit.RECORD) == PoissonSampled(0.5, GaussianEvent(0.55), Relation.REPLACE)


def test_noise_at_the_server_proves_nothing_against_the_server() -> None:
    for unit in Unit:
        assert dp_round().derive(population=100, dimension=5).units[unit].server is None


def test_noise_at_the_client_is_never_amplified() -> None:
    proof = dp_round(
        sample=Poisson(0.1, Relation.REPLACE), client=(Clip(1.0), AddNoise(Gaussian(2.0))), server=()
    ).derive(population=100, dimension=5)
    assert proof.primary.world == Mixture(0.1, GaussianEvent(1.0))
    assert proof.primary.server == proof.primary.world


def test_noise_at_the_client_under_zero_out_costs_one_norm() -> None:
    sampler = Poisson(0.1, Relation.ZERO_OUT)
    proof = dp_round(sample=sampler, client=(Clip(1.0), AddNoise(Gaussian(2.0))), server=()).derive(
        population=100, dimension=5
    )
    assert proof.primary.world == Mixture(0.1, GaussianEvent(2.0))


class Untold:
    def __call__(self, value: torch.Tensor, context: object) -> torch.Tensor:
        return value


PRIVATE = made_up_population([3, 3])
REFUSED = {
    "no clip": ({"client": ()}, "before anything bounds a row", "put Clip"),
    "noise before the clip": ({"client": (NOISE, Clip(1.0)), "server": ()}, "before anything bounds a row", "put Clip"),
    "weights without a cap": ({"client": (Clip(1.0), WeightByExamples())}, "has no cap", "WeightByExamples\\(cap=50\\)"),
    "realised mean": ({"aggregate": RealisedMean()}, "number of those who replied", "Mean\\(over="),
    "no noise": ({"server": ()}, "no piece of this round adds noise", "AddNoise"),
    "states nothing": ({"client": (Clip(1.0), Untold())}, "states nothing", "carry"),
    "private post-processing": (
        {"server": (NOISE, PostProcess(lambda value, data: value, data=PRIVATE))},  # type: ignore[arg-type]
        "not PublicData",
        "PublicData\\(name, records\\)",
    ),
    "processing before noise": ({"server": (PostProcess(torch.neg), NOISE)}, "before the noise", "after AddNoise"),
    "client noise, add/remove": ({"client": (Clip(1.0), NOISE), "server": ()}, "not that it was sent", "relation='replace'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_have_a_reason_and_a_fix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed, reason, fix = REFUSED[name]
    with pytest.raises(UnsoundRound, match=reason) as caught:
        dp_round(**changed)
    assert __import__("re").search(fix, caught.value.fix)


def test_a_refusal_shows_how_far_the_proof_went() -> None:
    with pytest.raises(UnsoundRound) as caught:
        dp_round(client=(Clip(0.2), WeightByExamples()))
    assert "Clip(norm=0.2)" in str(caught.value)
    assert "a message moves by at most 0.2" in str(caught.value)


def test_a_fixed_cohort_of_the_whole_population_is_refused() -> None:
    with pytest.raises(UnsoundRound, match="hides nobody"):
        dp_round(sample=FixedSize(50)).derive(population=50, dimension=5)


@pytest.mark.parametrize("words", ["shuffle:50", "epoch:3"])
def test_shuffled_cohorts_are_refused(words: str) -> None:
    with pytest.raises(UnsoundRound, match="not drawn independently"):
        parse_sampler(words)


@pytest.mark.parametrize(
    "words", ["poisson", "poisson:x", "poisson:1.5", "fixed:0", "fixed:1.5", "everyone:2", "nobody", ""]
)
def test_bad_samplers_get_one_sentence(words: str) -> None:
    with pytest.raises(BadValue):
        parse_sampler(words)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Clip(0.0), lambda: Clip(-1.0), lambda: Clip(float("nan")), lambda: Clip(float("inf")),
        lambda: Gaussian(0.0), lambda: Gaussian(-1.0), lambda: Gaussian(float("nan")), lambda: Mean(0.0),
        lambda: Mean(float("inf")), lambda: WeightByExamples(0), lambda: Sgd(lr=0.1), lambda: Sgd(lr=-1.0, epochs=1),
        lambda: Sgd(lr=0.1, epochs=1, steps=1), lambda: Sgd(lr=0.1, epochs=0), lambda: Sgd(lr=0.1, epochs=1, momentum=1.0),
        lambda: Sgd(lr=0.1, epochs=1, batch_size=0), lambda: Poisson(0.0), lambda: Poisson(float("nan")),
    ],
)  # fmt: skip
def test_pieces_refuse_values_that_cannot_be_meant(make: Any) -> None:
    with pytest.raises(BadValue):
        make()


def test_public_post_processing_is_free() -> None:
    public = PublicData("public", Records(torch.ones(2, 3), torch.zeros(2)))
    processed = dp_round(server=(NOISE, PostProcess(lambda value, data: value, data=public)))
    assert world(processed) == world(dp_round(server=(NOISE,)))


def test_a_piece_from_outside_is_named_in_the_assumptions() -> None:
    class Own(ClientPiece):
        def __call__(self, value: torch.Tensor, context: object) -> torch.Tensor:
            return value * 0.5

        def carry(self, claim: Claim) -> Claim:
            return claim.scaled(0.5)

    assumptions = dp_round(client=(Clip(1.0), Own())).derive(population=10, dimension=5).primary.assumptions
    assert any("as stated by" in words and "Own" in words for words in assumptions)


def test_the_baseline_is_explicit_and_costs_infinity() -> None:
    round = Round(sample=Poisson(0.5), local=Sgd(lr=0.1, epochs=1), aggregate=RealisedMean(), nonprivate=True)
    assert isinstance(world(round), NonPrivate)


def test_unproven_trains_and_says_which_step_fails() -> None:
    round = dp_round(client=(Clip(1.0), WeightByExamples()), unproven=True)
    proof = round.derive(population=10, dimension=5).primary
    assert isinstance(proof.world, NonPrivate)
    assert any(not step.proven and step.states.startswith("WeightByExamples()") for step in proof.steps)
