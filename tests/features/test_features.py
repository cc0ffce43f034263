"""Features are maps of single records: by themselves, by words, and on real digits."""

from __future__ import annotations

import copy
import math
import pickle
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.data import load
from sfumato.data.load import as_public
from sfumato.data.record_map import as_record_map
from sfumato.errors import BadValue, DataError
from sfumato.features import STEPS, Box, Fit, Grey, RandomConv, Resize, UnitNorm, parse_features
from sfumato.features.pictures import _filters
from sfumato.key import Key
from tests.features.law import law_of_single_records, pictures

WORDS = [
    "pixels",
    "hog:3",
    "random-conv:7",
    "resize:11,pixels",
    "resize:23,grey,hog",
    "box:2,unit-norm",
    "grey,unit-norm",
    "scattering:1,group-norm:9",
    "grey,scattering,group-norm",
]


@pytest.mark.parametrize("words", WORDS)
def test_a_record_is_mapped_as_if_it_were_alone(words: str) -> None:
    x = pictures(45, 3, 19, 17)
    law_of_single_records(parse_features(words), x)
    for step in parse_features(words).steps:  # without the cutting into parts
        law_of_single_records(step, x)
        x = step(x)


def test_a_step_that_looks_at_the_batch_breaks_the_law() -> None:
    with pytest.raises(AssertionError):
        law_of_single_records(lambda x: UnitNorm()(x - x.mean(0)), pictures(45, 1, 8, 8))


def test_every_word_is_under_the_law() -> None:
    assert {word.partition(":")[0] for words in WORDS for word in words.split(",")} == set(STEPS) - {
        "last-characters"  # no pictures: tests/features/test_text.py
    }


def test_kernels_round_by_the_batch_which_is_why_a_network_sees_one_record_at_a_time() -> None:
    network, x = nn.Sequential(nn.Flatten(), nn.Linear(768, 24, bias=False)), pictures(45, 3, 16, 16)
    network[1].weight.data = Key.from_seed(2).normal(24, 768).float()
    with torch.no_grad(), pytest.raises(AssertionError):
        law_of_single_records(network, x)
    law_of_single_records(as_record_map(network), x)


def test_random_filters_are_what_a_convolution_gives() -> None:
    x, step = pictures(20, 1, 16, 16), RandomConv(64)
    filters, threshold = _filters(step, 1, 36)
    found = F.conv2d((x * 255).round().double(), filters.double().view(-1, 1, 5, 5), padding=2)
    fields = F.one_hot(torch.arange(16) * 3 // 16, 3).double()
    sums = torch.einsum("nfhw,hi,wj->nfij", F.relu(found.abs() - threshold), fields, fields)
    assert torch.allclose(step(x).double(), F.normalize(sums.flatten(1), dim=1), atol=1e-7)


def test_sums_of_random_filters_stay_whole_and_below_what_float32_adds_exactly() -> None:
    for channels, side in ((1, 16), (1, 28), (3, 32), (3, 64)):
        pixels = math.ceil(side / 3) ** 2
        filters, threshold = _filters(RandomConv(64), channels, pixels)
        assert torch.equal(filters, filters.round()) and threshold == round(threshold)
        assert float(filters.abs().double().sum(1).max()) * 255 * pixels <= 2**24
        assert int(filters.abs().max()) >= 3
    with pytest.raises(DataError, match="Put resize:64"):
        RandomConv()(torch.zeros(1, 3, 224, 224))


@pytest.mark.parametrize("size", [(16, 16), (40, 31), (20, 7)])
def test_resizing_is_bilinear_with_antialiasing(size: tuple[int, int]) -> None:
    x = pictures(3, 2, 20, 28)
    usual = F.interpolate(x, size=size, mode="bilinear", antialias=True, align_corners=False)
    assert float((Resize(*size)(x) - usual).abs().max()) < 5e-6


def test_norms_are_one_and_what_has_none_is_zero() -> None:
    x = torch.stack([torch.zeros(4), torch.full((4,), 1e30), torch.tensor([3.0, torch.nan, 4.0, torch.inf])])
    assert UnitNorm()(x).tolist() == [[0.0] * 4, [0.5] * 4, [pytest.approx(0.6), 0.0, pytest.approx(0.8), 0.0]]


def test_the_box_of_one_set_goes_to_the_box_of_the_other() -> None:
    x = torch.zeros(2, 1, 28, 28)
    x[:, :, 4:24, 4:24] = 1.0
    assert torch.allclose(Fit((1, 16, 16), 0, 4)(x), torch.ones(2, 1, 16, 16))
    back = Fit((3, 28, 28), 4, 0)(torch.ones(2, 1, 16, 16))
    assert torch.allclose(back, x.expand(-1, 3, -1, -1))
    assert Fit((1, 28, 28), 4, 4)(x) is x
    assert torch.allclose(Fit((1, 8, 8))(torch.ones(1, 3, 8, 8)), torch.ones(1, 1, 8, 8))
    with pytest.raises(DataError, match="both must be pictures"):
        Fit((16,))(x)


def test_words_that_name_nothing_are_refused() -> None:
    for words, said in (
        ("hogg", "Did you mean 'hog'"),
        ("hog:x", "no whole number"),
        ("resize", "Write resize:16"),
        ("grey:3", "takes no number"),
        ("", "unknown features"),
        ("nowhere_at_all:thing", "cannot import"),
        ("math:pi", "maps nothing"),
    ):
        with pytest.raises(BadValue, match=said):
            parse_features(words)
    with pytest.raises(DataError, match="no pictures"):
        Grey()(torch.zeros(2, 5))
    with pytest.raises(DataError, match="nothing would be left"):
        Box(4)(torch.zeros(2, 1, 8, 8))
    with pytest.raises(DataError, match="int64"):
        parse_features("pixels")(torch.zeros(2, 3, dtype=torch.int64))


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("theirs")
    monkeypatch.setitem(sys.modules, "theirs", module)
    return module


def test_a_network_of_ones_own_is_frozen_and_sees_one_record_at_a_time(theirs: types.ModuleType) -> None:
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Dropout(), nn.Flatten(), nn.Linear(8 * 36, 5))
    theirs.network, theirs.build, theirs.plain = net, lambda: net, lambda x: x.flatten(1) - 1.0  # type: ignore[attr-defined]
    x = pictures(20, 1, 8, 8)
    for path in ("theirs:network", "theirs:build"):
        features = parse_features(f"{path},unit-norm")
        law_of_single_records(features.steps[0], x)
        found = features(x)
        assert found.shape == (20, 5) and not found.requires_grad
        assert torch.allclose(found, F.normalize(copy.deepcopy(net).eval()(x), dim=1), atol=1e-6)
    theirs.drawn = lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5))  # type: ignore[attr-defined]
    assert torch.equal(parse_features("theirs:drawn")(x), parse_features("theirs:drawn")(x))
    assert torch.equal(parse_features("theirs:plain")(x), x.flatten(1) - 1.0)
    assert parse_features("theirs:plain")(x[:0]).shape == (0, 64)


def test_what_remembers_or_draws_is_refused(theirs: types.ModuleType) -> None:
    seen: list[Tensor] = []
    theirs.remembers = lambda x: (seen.append(x), x.flatten(1) * len(seen))[1]  # type: ignore[attr-defined]
    theirs.adds_up = lambda x: x.sum()  # type: ignore[attr-defined]
    with pytest.raises(BadValue, match="two answers"):
        parse_features("theirs:remembers")(pictures(3, 1, 2, 2))
    with pytest.raises(BadValue, match=r"one record \[1, ...\] gives \(\)"):
        parse_features("theirs:adds_up")(pictures(3, 1, 2, 2))


def test_features_can_be_sent_and_named() -> None:
    features = parse_features("resize:8,hog:2")
    assert pickle.loads(pickle.dumps(features)) == features
    assert pickle.loads(pickle.dumps(as_record_map(torch.sigmoid))).function is torch.sigmoid


@pytest.mark.data
def test_cropping_mnist_to_its_box_before_resizing_brings_its_digits_near_those_of_usps() -> None:
    """5 nearest neighbours among 6,000 digits of MNIST, asked about 1,000 of USPS."""
    mnist, (_, asked) = load("mnist").unscaled, as_public(load("usps").unscaled, Key.from_seed(0))
    features, x, y = parse_features("hog"), mnist.scaling(mnist.pool.x[:6000]), mnist.pool.y[:6000]
    right = {}
    for margin in (0, mnist.margin):
        known, questions = features(Fit((1, 16, 16), 0, margin)(x)), features(asked.records.x[:1000])
        nearest = (questions @ known.T).topk(5).indices
        said = F.one_hot(y[nearest], 10).sum(1).argmax(1)
        right[margin] = float((said == asked.records.y[:1000]).double().mean())
    assert right[4] > 0.90 and right[4] > right[0] + 0.04


def test_a_map_that_changes_with_the_batch_is_refused() -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for mixes in (lambda x: x - x.mean(0), lambda x: x / x.abs().max()):
        with pytest.raises(BadValue, match="changes with the records beside it"):
            as_record_map(mixes)(x)
    one_only = as_record_map(lambda x: x.flatten()[None])
    assert torch.equal(one_only(x), x)
    assert torch.equal(as_record_map(lambda x: x * 2)(x), 2 * x)
