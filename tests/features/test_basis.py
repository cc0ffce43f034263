"""A basis of public records: what it is, what it is learnt from, and that its map is exact."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from sfumato.data.population import Population, PublicData, Records
from sfumato.digest import digest
from sfumato.errors import BadValue, DataError
from sfumato.features import Features, PublicPCA, parse_features
from sfumato.features.basis import _MOST, drawn
from sfumato.key import Key
from tests.features.law import law_of_single_records, pictures


def public(x: Tensor) -> PublicData:
    return PublicData("open", Records(x, torch.zeros(len(x), dtype=torch.int64)))


def slanted(count: int, *shape: int) -> Tensor:
    """Records whose numbers have quite different scales."""
    drawn = Key.from_seed(3).normal(count, *shape).float()
    return drawn * torch.logspace(0, -2, drawn[0].numel()).view(shape) + 0.5


@pytest.mark.parametrize("shape", [(50, 6), (12, 40)])  # more records than numbers, and fewer
def test_it_is_what_the_singular_values_say(shape: tuple[int, int]) -> None:
    x = slanted(*shape)
    centred = x.double() - x.double().mean(0)
    _, values, vectors = torch.linalg.svd(centred, full_matrices=False)
    stddevs = values / math.sqrt(len(x))
    for whiten in (0.0, 0.5, 1.0):
        found = PublicPCA.learn(public(x), 5, whiten)(x).double()
        expected = centred @ vectors[:5].T / (stddevs[:5] / stddevs[0]) ** whiten
        assert torch.allclose(found.abs(), expected.abs(), atol=1e-5)
    assert torch.allclose(found.square().mean(0).sqrt(), stddevs[:1].expand(5), rtol=1e-5)


def test_few_of_many_directions_are_nearly_the_leading_ones() -> None:
    x = slanted(400, 300)
    centred = x.double() - x.double().mean(0)
    values = torch.linalg.svdvals(centred)
    found = PublicPCA.learn(public(x), 20, 0.0)(x).double().square().sum(0).sqrt()
    assert torch.allclose(found, values[:20], rtol=1e-4)


def test_signs_are_fixed() -> None:
    x = slanted(50, 6)
    directions = PublicPCA.learn(public(x), 6).directions
    assert bool((directions.gather(0, directions.abs().argmax(0, keepdim=True)) > 0).all())


@pytest.mark.parametrize("shape", [(37,), (3, 5, 7), (2, 700)])
def test_a_record_is_mapped_as_if_it_were_alone(shape: tuple[int, ...]) -> None:
    step = PublicPCA.learn(public(slanted(60, *shape)), 13)
    law_of_single_records(step, pictures(45, *shape))
    law_of_single_records(Features((step,)), slanted(45, *shape) * 1e-20)


def test_products_are_exact_as_those_of_whole_numbers_are() -> None:
    """The slow twin: Python's whole numbers, which have no width, and fractions."""
    x = slanted(9, 300)
    x[1], x[2, 5], x[3] = x[1] * 1e30, torch.inf, 0.0
    step = PublicPCA.learn(public(slanted(60, 300)), 4)
    found = step(x)
    for record, row in zip(x, found, strict=True):
        rest = [
            (float(one) if math.isfinite(one) else 0.0) - mean
            for one, mean in zip(record, step.mean.tolist(), strict=True)
        ]
        exponent = 26 - math.frexp(math.sqrt(math.fsum(one * one for one in rest)))[1]
        numbers = [round(math.ldexp(one, exponent)) for one in rest]
        for column in range(4):
            whole = [int(one) for one in step.directions[:, column]]
            assert sum(abs(a * b) for a, b in zip(numbers, whole, strict=True)) < 2**53
            total = sum(a * b for a, b in zip(numbers, whole, strict=True))
            exact = float(Fraction(total) / Fraction(2) ** (exponent + 26)) / float(step.scales[column])
            assert float(row[column]) == float(np.float32(exact))


def test_the_worst_sum_of_products_is_below_what_float64_has() -> None:
    """A record along a direction, just below the next power of two: |w| |b| is as large as it gets."""
    x = slanted(4200, 4100)
    step = PublicPCA.learn(public(x[:30]), 3)
    along = (step.mean + step.directions[:, 0] * 2.0**-26 * (16.0 - 2.0**-20)).float()
    assert float(step(along[None])[0, 0]) == pytest.approx(16.0, abs=1e-4)
    whole = (step.directions[:, 0] / 2.0**26 * (2.0**26 - 1)).round()
    assert sum(abs(int(a) * int(b)) for a, b in zip(whole, step.directions[:, 0], strict=True)) < 2**53
    assert torch.equal(step.directions, step.directions.round())


def test_only_public_records_give_a_basis() -> None:
    x = slanted(20, 6)
    people = Population.from_list([(x, torch.zeros(20))])
    for private in (people, x, Records(x, torch.zeros(20))):
        with pytest.raises(BadValue, match="needs PublicData"):
            PublicPCA.learn(private, 3)
    with pytest.raises(BadValue, match="learnt from clients' records tells of them"):
        parse_features("pca:3")


def test_words_learn_from_what_the_steps_before_give() -> None:
    known, x = public(pictures(60, 1, 12, 12)), pictures(9, 1, 12, 12)
    features = parse_features("resize:8, pca:7:1, unit-norm", known)
    resized = parse_features("resize:8")
    learnt = PublicPCA.learn(public(resized(known.records.x)), 7, 1.0)
    assert features.steps[1] == learnt and features.steps[1] != PublicPCA.learn(known, 7, 1.0)
    assert torch.equal(features(x), parse_features("unit-norm")(learnt(resized(x))))
    assert features(x[:0]).shape == (0, 7)
    assert parse_features("resize:8,pca:7", known).steps[1] == PublicPCA.learn(public(resized(known.records.x)), 7, 0.5)


def test_it_has_a_name_that_changes_with_its_numbers_and_can_be_sent() -> None:
    x = slanted(60, 6)
    step, other = PublicPCA.learn(public(x), 3), PublicPCA.learn(public(x[1:]), 3)
    assert repr(step) == "PublicPCA('open', 3, whiten=0.5)" == repr(other)
    assert digest(step) != digest(other) and step != other and step != "open"
    assert len({digest(PublicPCA.learn(public(x), *more)) for more in ((3,), (2,), (3, 0.25))}) == 3
    again = pickle.loads(pickle.dumps(Features((step,))))
    assert (
        again == Features((step,))
        and hash(again) == hash(Features((step,)))
        and digest(again) == digest(Features((step,)))
    )
    people = Population.from_list([(x, torch.zeros(60))])
    same = PublicPCA.learn(public(x), 3)
    assert len({digest(people.mapped(Features((one,))).client(0)) for one in (step, other, same)}) == 2


def test_threads_change_no_bit_of_a_basis() -> None:
    before, known = torch.get_num_threads(), public(slanted(500, 400))
    try:
        torch.set_num_threads(1)
        alone = PublicPCA.learn(known, 50)
        torch.set_num_threads(4)
        assert PublicPCA.learn(known, 50) == alone and torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_many_records_are_drawn_from_by_a_public_key() -> None:
    x = torch.arange(_MOST + 500.0)[:, None]
    few = drawn(PublicData("many", Records(x, x[:, 0]), pictures=x))
    assert few.records.count == _MOST and torch.equal(few.records.x, drawn(public(x)).records.x)
    assert torch.equal(few.records.x[:, 0], few.records.y) and few.records.x.unique().numel() == _MOST
    assert bool((few.records.x[:, 0] > _MOST).any()) and drawn(few) is few


def test_what_cannot_be_is_refused() -> None:
    x = slanted(20, 6)
    for words, said in (
        ("pca", "nothing is no whole number above 0"),
        ("pca:0", "0 is no whole number above 0"),
        ("pca:3:much", "'much' is no number from 0 to 1. Write pca:200:0.5"),
        ("pca:3:2", "whiten=2.0 must lie from 0"),
        ("pca:3:nan", "whiten=nan must lie from 0"),
        ("pca:7", "20 records of open with 6 numbers each have at most 6 directions. Use pca:6 or fewer"),
        ("pcb:7", "Did you mean 'pca'"),
    ):
        with pytest.raises(BadValue, match=said):
            parse_features(words, public(x))
    with pytest.raises(BadValue, match="at most 4 directions"):
        PublicPCA.learn(public(x[:5]), 6)
    with pytest.raises(BadValue, match="0 records of open with 6 numbers each have at most 0 directions. Use pca:1"):
        PublicPCA.learn(public(x[:0]), 6)
    with pytest.raises(BadValue, match="vary in 2 directions only. Use pca:2 or fewer"):
        PublicPCA.learn(public(torch.cat([x[:, :2], torch.ones(20, 3)], dim=1)), 3)
    with pytest.raises(BadValue, match="vary in 0 directions only. Use pca:1"):
        PublicPCA.learn(public(torch.ones(20, 3)), 3)
    with pytest.raises(DataError, match=r"shape \(3, 2\), and the basis is of open's of shape \(6,\). .* resize:28"):
        PublicPCA.learn(public(x), 3)(torch.zeros(1, 3, 2))
