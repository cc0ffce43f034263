from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.models import NAMES, build
from sfumato.models.char_lstm import CharLstm
from sfumato.models.resnet import resnet_18

KEY = Key.from_seed(0)
IMAGE, COLOUR, TEXT, SERIES = (1, 28, 28), (3, 32, 32), (80,), (7, 48)
SHAPES = {name: {"char-lstm": TEXT, "cnn-wind": SERIES}.get(name, COLOUR) for name in NAMES}
OUTPUTS = {name: 48 if name == "cnn-wind" else 100 for name in NAMES}
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.LSTM)


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "parameters"),
    [
        ("logistic", IMAGE, 10, 7_850),
        ("mlp", IMAGE, 10, 199_210),
        ("cnn-mnist", IMAGE, 10, 108_618),
        ("cnn-emnist", IMAGE, 62, 1_690_046),
        ("cnn-cifar", COLOUR, 10, 122_570),
        ("cnn-medical", IMAGE, 6, 134_854),
        ("cnn-medical", (1, 64, 64), 6, 585_414),
        ("cnn-wind", SERIES, 48, 1_889),
        ("resnet-18", COLOUR, 10, 11_173_962),
        ("char-lstm", TEXT, 80, 819_920),
    ],
)
def test_models_have_their_published_sizes(name: str, shape: tuple[int, ...], outputs: int, parameters: int) -> None:
    model = build(name, shape, outputs, KEY)
    assert sum(p.numel() for p in model.parameters()) == parameters
    x = torch.zeros(3, *shape, dtype=torch.int64 if shape == TEXT else torch.float32)
    assert model(x).shape == (3, outputs)


@pytest.mark.parametrize("name", NAMES)
def test_weights_follow_from_the_key_alone(name: str) -> None:
    first = build(name, SHAPES[name], OUTPUTS[name], KEY).state_dict()
    torch.rand(3)
    again, other = (build(name, SHAPES[name], OUTPUTS[name], key).state_dict() for key in (KEY, Key.from_seed(1)))
    assert all(torch.equal(first[word], again[word]) for word in first)
    random = [word for word, value in first.items() if value.unique().numel() > 1]  # norms start at 1 and 0
    assert not any(torch.equal(first[word], other[word]) for word in random) and len(random) >= 2


def test_no_two_layers_share_their_draws() -> None:
    for name in ("cnn-cifar", "char-lstm"):
        firsts = [p.detach().flatten()[:2] for p in build(name, SHAPES[name], 10, KEY).parameters()]
        ratios = [float(first[1] / first[0]) for first in firsts]
        assert len({round(ratio, 3) for ratio in ratios}) == len(ratios)


@pytest.mark.parametrize("name", NAMES)
def test_torchs_global_generator_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    build(name, SHAPES[name], OUTPUTS[name], KEY)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", NAMES)
def test_weights_have_torchs_own_law(name: str) -> None:
    for layer in build(name, SHAPES[name], OUTPUTS[name], KEY).modules():
        if isinstance(layer, LAYERS):
            bound = 1 / math.sqrt(layer.hidden_size if isinstance(layer, nn.LSTM) else layer.weight[0].numel())
            for kind, parameter in layer.named_parameters():
                value = parameter.detach()
                assert float(value.abs().max()) <= bound
                if value.numel() > 16 or "bias" not in kind:  # a few numbers need not come near their bound
                    assert (0.8 if "bias" in kind or value.numel() < 100 else 0.97) * bound < float(value.abs().max())
                if "bias" not in kind and value.numel() >= 100:
                    assert float(value.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
        elif isinstance(layer, nn.Embedding):
            assert float(layer.weight.detach().std()) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize(
    ("name", "units", "layers"), [("char-lstm", 256, 2), ("char-lstm:64", 64, 2), ("char-lstm:32x1", 32, 1)]
)
def test_a_smaller_lstm_has_its_size_in_its_name(name: str, units: int, layers: int) -> None:
    model = build(name, TEXT, 80, KEY)
    assert isinstance(model, CharLstm)
    assert (model.recurrent.hidden_size, model.recurrent.num_layers, model.embedding.embedding_dim) == (
        units,
        layers,
        8,
    )


@pytest.mark.parametrize(
    "name", ["char-lstm:big", "char-lstm:64x", "char-lstm:x2", "char-lstm:-3", "char-lstm:0", "char-lstm:8x0"]
)
def test_sizes_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(BadValue, match="at least 1|char-lstm:64x1"):
        build(name, TEXT, 80, KEY)


def test_text_and_pictures_are_not_taken_for_each_other() -> None:
    with pytest.raises(BadValue, match="char-lstm takes windows"):
        build("char-lstm", COLOUR, 80, KEY)
    for shape, outputs in ((COLOUR, 48), (SERIES, 10)):
        with pytest.raises(BadValue, match="cnn-wind takes series"):
            build("cnn-wind", shape, outputs, KEY)
    with pytest.raises(BadValue, match="unknown model 'mlp:64'"):
        build("mlp:64", IMAGE, 10, KEY)


def test_a_record_of_resnet_does_not_depend_on_its_batch() -> None:
    with KEY.seeding_torch():
        model = resnet_18(3, 10, width=16)
    x = KEY.normal(3, 3, 16, 16).float()
    with torch.no_grad():
        assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-5)


def test_the_lstm_reads_in_order_and_looks_at_every_character() -> None:
    model = build("char-lstm:16", (5,), 7, KEY)
    x = torch.tensor([[1, 2, 3, 4, 5]])
    with torch.no_grad():
        outputs = [model(x), model(x.flip(1)), *(model(x.index_fill(1, torch.tensor([i]), 0)) for i in range(5))]
    assert len({tuple(output[0].tolist()) for output in outputs}) == 7


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


@pytest.mark.parametrize(("name", "side"), [("cnn-mnist", 10), ("cnn-emnist", 4), ("cnn-cifar", 18), ("resnet-18", 8)])
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
