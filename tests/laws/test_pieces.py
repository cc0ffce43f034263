"""The laws, on every piece that we have."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sfumato
from sfumato import (
    Adam,
    AddNoise,
    Clip,
    Everyone,
    FixedSize,
    Gaussian,
    Mean,
    Poisson,
    PostProcess,
    Relation,
    WeightByExamples,
)
from sfumato.claim import text
from sfumato.testing import check_noise, check_piece, check_round, check_sampler
from sfumato.testing.piece import claim_for, context_for
from tests.helpers import dp_round


@pytest.mark.parametrize("norm", [1e-12, 0.3, 1.0, 1e6, 1e30])
def test_clip_holds_the_laws(norm: float) -> None:
    check_piece(Clip(norm))


def test_weights_hold_the_laws() -> None:
    check_piece(WeightByExamples(cap=20), l2=0.5)
    check_piece(WeightByExamples(cap=1), l2=0.5)


@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 20.0])
def test_noise_holds_the_laws(noise_multiplier: float) -> None:
    check_noise(AddNoise(Gaussian(noise_multiplier)))


@pytest.mark.parametrize(
    "sampler",
    [
        Poisson(0.2),
        Poisson(0.9),
        Poisson(0.3, Relation.REPLACE),
        FixedSize(8),
        FixedSize(30),
        FixedSize(8, Relation.ADD_REMOVE),
        Everyone(),
    ],
    ids=text,
)
def test_samplers_hold_the_laws(sampler: object) -> None:
    check_sampler(sampler)


@pytest.mark.parametrize(
    "sampler",
    [
        Poisson(0.5),
        Poisson(0.5, Relation.REPLACE),
        FixedSize(3),
        FixedSize(3, Relation.ADD_REMOVE),
        Everyone(),
        Everyone(Relation.REPLACE),
    ],
    ids=text,
)
def test_an_attack_on_a_round_stays_under_its_guarantee(sampler: object) -> None:
    check_round(dp_round(sample=sampler))


def test_an_attack_on_client_noise_stays_under_its_guarantee() -> None:
    check_round(dp_round(sample=Poisson(0.5, Relation.REPLACE), client=(Clip(1.0), AddNoise(Gaussian(2.0))), server=()))


@given(
    rows=st.lists(st.lists(st.floats(width=32, allow_nan=True), min_size=3, max_size=3), min_size=1, max_size=5),
    norm=st.floats(1e-10, 1e10),
)
def test_no_row_passes_the_clip(rows: list[list[float]], norm: float) -> None:
    tensor = torch.tensor(rows, dtype=torch.float32)
    clipped = Clip(norm)(tensor, context_for(tensor, claim_for(3)))
    assert (torch.linalg.vector_norm(clipped, dim=1, dtype=torch.float64) <= norm).all()


def test_the_clip_leaves_small_rows_alone() -> None:
    rows = torch.tensor([[0.3, 0.4], [0.0, 0.0]])
    assert torch.equal(Clip(1.0)(rows, context_for(rows, claim_for(2))), rows)


def test_a_long_row_ends_just_inside_the_ball() -> None:
    rows = torch.full((1, 100), 5.0)
    norm = torch.linalg.vector_norm(Clip(1.0)(rows, context_for(rows, claim_for(100))), dtype=torch.float64).item()
    assert 1.0 - 1e-5 < norm <= 1.0


@pytest.mark.parametrize(
    "piece",
    [Clip(0.3), WeightByExamples(cap=7), AddNoise(Gaussian(1.5)), Poisson(0.1, Relation.REPLACE), FixedSize(5), Everyone(),
     Mean(5.0), Adam(), dp_round()],
    ids=lambda piece: type(piece).__name__,
)  # fmt: skip
def test_the_text_of_a_piece_reads_back(piece: object) -> None:
    names = {name: getattr(sfumato, name) for name in sfumato.__all__}
    assert eval(text(piece), names) == piece


def test_post_processing_is_applied() -> None:
    halved = PostProcess(lambda value: value / 2)
    row = torch.ones(4)
    assert torch.equal(halved(row, context_for(row[None], claim_for(4))), row / 2)
