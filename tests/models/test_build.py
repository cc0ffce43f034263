from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.models import NAMES, build

KEY = Key.from_seed(0)
IMAGE, COLOUR = (1, 28, 28), (3, 32, 32)


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "parameters"),
    [
        ("logistic", IMAGE, 10, 7_850),
        ("mlp", IMAGE, 10, 199_210),
        ("cnn-mnist", IMAGE, 10, 108_618),
        ("cnn-emnist", IMAGE, 62, 1_690_046),
        ("cnn-cifar", COLOUR, 10, 122_570),
    ],
)
def test_models_have_their_published_sizes(name: str, shape: tuple[int, ...], outputs: int, parameters: int) -> None:
    model = build(name, shape, outputs, KEY)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model(torch.zeros(3, *shape)).shape == (3, outputs)


@pytest.mark.parametrize("name", NAMES)
def test_weights_follow_from_the_key_alone(name: str) -> None:
    first = build(name, COLOUR, 10, KEY).state_dict()
    torch.rand(3)
    again, other = build(name, COLOUR, 10, KEY).state_dict(), build(name, COLOUR, 10, Key.from_seed(1)).state_dict()
    assert all(torch.equal(first[word], again[word]) for word in first)
    assert not any(torch.equal(first[word], other[word]) for word in first)


def test_no_two_layers_share_their_draws() -> None:
    firsts = [p.detach().flatten()[:2] for p in build("cnn-cifar", COLOUR, 10, KEY).parameters()]
    ratios = [float(first[1] / first[0]) for first in firsts]
    assert len({round(ratio, 3) for ratio in ratios}) == len(ratios)


@pytest.mark.parametrize("name", NAMES)
def test_torchs_global_generator_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    build(name, COLOUR, 10, KEY)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", NAMES)
def test_weights_have_torchs_own_law(name: str) -> None:
    for layer in build(name, COLOUR, 100, KEY).modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            weight = layer.weight.detach()
            assert 0.97 * bound < float(weight.abs().max()) <= bound
            assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
            assert layer.bias is not None and 0.8 * bound < float(layer.bias.detach().abs().max()) <= bound


def test_records_of_any_shape_are_flattened_for_logistic_and_mlp() -> None:
    for name in ("logistic", "mlp"):
        assert build(name, (7,), 2, KEY)(torch.zeros(5, 7)).shape == (5, 2)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("cnn-mnist", (1, 8, 8)), ("cnn-emnist", (64,)), ("cnn-cifar", (3, 16, 32)), ("cnn-mnist", (28, 28))],
)
def test_records_that_are_no_images_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(BadValue, match=f"{name} takes images"):
        build(name, shape, 10, KEY)


@pytest.mark.parametrize(("name", "side"), [("cnn-mnist", 10), ("cnn-emnist", 4), ("cnn-cifar", 18)])
def test_the_smallest_images_that_are_taken_work(name: str, side: int) -> None:
    assert build(name, (1, side, side), 2, KEY)(torch.zeros(1, 1, side, side)).shape == (1, 2)


def test_an_unknown_name_is_refused_with_the_near_one() -> None:
    with pytest.raises(BadValue, match="Did you mean 'cnn-mnist'"):
        build("cnn-minst", IMAGE, 10, KEY)


def test_a_module_comes_back_as_it_is() -> None:
    mine = nn.Linear(3, 2)
    assert build(mine, (3,), 2, KEY) is mine


MODULE = """
from torch import nn
ready = nn.Linear(2, 2)
text = "no model"
def fixed(): return nn.Linear(4, 3)
def fitted(input_shape, outputs): return nn.Linear(input_shape[0], outputs)
def number(): return 5
class Net(nn.Sequential):
    def __init__(self, outputs): super().__init__(nn.Linear(4, outputs))
"""


def test_import_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    before = torch.get_rng_state()
    built = [build(f"their_models:{name}", (4,), 3, KEY) for name in ("fixed", "fitted", "Net") for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    weights = [next(model.parameters()) for model in built]
    assert all(weight.shape == (3, 4) and torch.equal(weight, weights[0]) for weight in weights)
    assert not torch.equal(next(build("their_models:fixed", (4,), 3, Key.from_seed(1)).parameters()), weights[0])
    assert isinstance(build("their_models:ready", (2,), 2, KEY), nn.Linear)
    for name, words in [("number", "gives a int"), ("text", "is a str"), ("fitting", "Did you mean 'fitted'")]:
        with pytest.raises(BadValue, match=words):
            build(f"their_models:{name}", (4,), 3, KEY)
