from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from sfumato.errors import BadValue, UnsoundRound
from sfumato.key import Key
from sfumato.models import NAMES, build, check_module, replace_batchnorm

IMAGES = Key.from_seed(0).normal(4, 3, 32, 32).float()
ROWS = torch.linspace(-1, 1, 12).reshape(3, 4)


class Counter(nn.Module):
    """Keeps a tensor that is not even a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.seen = torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + x.sum()
        return torch.as_tensor(self.linear(x))


class Cache(nn.Module):
    """Gains a tensor in its first forward pass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x.mean(0)
        return x


class Keeps(nn.Module):
    """Keeps what it has seen in an attribute of any kind."""

    shared: ClassVar[dict[str, float]] = {}

    def __init__(self, attribute: str, keep: Callable[[Any, torch.Tensor], Any], start: Any) -> None:
        super().__init__()
        self.linear, self.attribute, self.keep = nn.Linear(4, 2), attribute, keep
        setattr(self, attribute, start)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        setattr(self, self.attribute, self.keep(getattr(self, self.attribute), x.detach()))
        return torch.as_tensor(self.linear(x))


class InItsClass(Keeps):
    def __init__(self) -> None:
        super().__init__("_", lambda before, x: None, None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shared["sum"] = float(x.sum())
        return torch.as_tensor(self.linear(x))


class WhileItLearns(Keeps):
    """Keeps something only where gradients are computed, as codebooks and routers do."""

    def __init__(self) -> None:
        super().__init__("_", lambda before, x: None, None)
        self.running = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and torch.is_grad_enabled():
            self.running = 0.9 * self.running + 0.1 * float(x.square().mean())
        return torch.as_tensor(self.linear(x)) - self.running


class OnTheWayBack(Keeps):
    """Keeps something of the gradient."""

    def __init__(self) -> None:
        super().__init__("_", lambda before, x: None, None)
        self.gradient = 0.0

    def _seen(self, gradient: torch.Tensor) -> None:
        self.gradient = float(gradient.sum())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.as_tensor(self.linear(x))
        if found.requires_grad:
            found.register_hook(self._seen)
        return found


class Box:
    def __init__(self, mean: float) -> None:
        self.mean = mean


KEEPERS: dict[str, Callable[[], nn.Module]] = {
    "_mean": lambda: Keeps("_mean", lambda before, x: before + float(x.sum()) + 1.0, 0.0),
    "_cache": lambda: Keeps("_cache", lambda before, x: [*before, x], []),
    "numbers": lambda: Keeps("numbers", lambda before, x: before + x.numpy().sum() + 1.0, np.zeros(3)),
    "queue": lambda: Keeps("queue", lambda before, x: deque([x]), deque()),
    "inside": lambda: Keeps("inside", lambda before, x: {"a": (len, {"b": x.sum()})}, {"a": (len, {"b": 0})}),
    "box": lambda: Keeps("box", lambda before, x: Box(float(x.mean())), Box(1.0)),
    "shared": InItsClass,
    "running": WhileItLearns,
    "gradient": OnTheWayBack,
}


@pytest.mark.parametrize("attribute", KEEPERS)
def test_state_in_attributes_of_any_kind_is_refused(attribute: str) -> None:
    with pytest.raises(UnsoundRound, match=f"outside the row.*{attribute}"):
        check_module(KEEPERS[attribute](), ROWS)


def test_attributes_that_stay_as_they_are_pass() -> None:
    model = Keeps("_all", lambda before, x: before, [np.ones(2), deque([torch.ones(3)]), {"f": lambda: 1}, Box(2.0)])
    check_module(model, ROWS)
    check_module(nn.LSTM(4, 3, num_layers=2), ROWS)


@pytest.mark.parametrize("name", NAMES)
def test_named_models_pass(name: str) -> None:
    others = {"char-lstm": torch.arange(12).reshape(2, 6) % 10, "cnn-wind": torch.ones(2, 7, 10)}
    example = others.get(name, IMAGES)
    check_module(build(name, tuple(example.shape[1:]), 10, Key.from_seed(0)), example)


class LastState(nn.Module):
    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.layer(x)[0][:, -1])


class Noisy(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.empty_like(x).normal_()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (LastState(nn.LSTM(3, 3, 2, dropout=0.1)), "dropout inside layer .LSTM.*dropout=0.*one module per layer"),
        (LastState(nn.GRU(3, 3, 2, dropout=0.1)), "dropout inside layer .GRU"),
        (nn.TransformerEncoderLayer(3, 1, 4, batch_first=True), "dropout inside self_attn .MultiheadAttention"),
        (Noisy(3, 3), "Use nn.Dropout, or nothing random"),
        (nn.RReLU(), "draws random numbers by rrelu"),
    ],
    ids=["lstm", "gru", "attention", "own noise", "rrelu"],
)
def test_random_numbers_that_no_key_controls_are_refused(model: nn.Module, words: str) -> None:
    generator = torch.get_rng_state()
    with pytest.raises(BadValue, match=words):
        check_module(model, torch.ones(2, 4, 3))
    assert torch.equal(torch.get_rng_state(), generator)


def test_dropout_between_recurrent_layers_of_one_each_passes() -> None:
    layers = [LastState(nn.LSTM(3, 3, batch_first=True)), nn.Dropout(0.5), nn.Linear(3, 3), nn.Dropout1d(0.5)]
    check_module(nn.Sequential(*layers), torch.ones(2, 4, 3))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.LayerNorm(4)),
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)),
        weight_norm(nn.Linear(4, 2)),
    ],
    ids=["dropout", "batchnorm without statistics", "weight norm"],
)
def test_layers_without_state_pass_and_nothing_is_touched(model: nn.Module) -> None:
    model.eval()
    generator = torch.get_rng_state()
    check_module(model, ROWS)
    assert not model.training and torch.equal(torch.get_rng_state(), generator)


def test_frozen_parameters_and_constant_buffers_pass() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).requires_grad_(False)
    model[1].requires_grad_(True)
    model.register_buffer("scale", torch.tensor([1.0, float("nan")]))
    check_module(model, ROWS)


@pytest.mark.parametrize(
    ("model", "example", "named"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), ROWS, "1 (BatchNorm1d)"),
        (nn.BatchNorm2d(3), IMAGES, "the model (BatchNorm2d)"),
        (nn.InstanceNorm2d(3, track_running_stats=True), IMAGES, "InstanceNorm2d"),
        (spectral_norm(nn.Linear(4, 4)), ROWS, "parametrizations.weight.0._u"),
        (Counter(), ROWS, "seen"),
        (Cache(), ROWS, "last"),
    ],
    ids=["batchnorm", "whole model", "instance norm", "spectral norm", "attribute", "new attribute"],
)
def test_state_outside_the_row_is_refused(model: nn.Module, example: torch.Tensor, named: str) -> None:
    before = {word: value.clone() for word, value in model.state_dict().items()}
    with pytest.raises(UnsoundRound, match="outside the row") as caught:
        check_module(model, example)
    assert named in caught.value.reason and caught.value.fix
    assert all(torch.equal(value, before[word]) for word, value in model.state_dict().items())


def test_every_offender_is_listed_and_the_fix_is_named() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Sequential(nn.ReLU(), nn.BatchNorm2d(8)))
    with pytest.raises(UnsoundRound) as caught:
        check_module(model, IMAGES)
    assert "1 (BatchNorm2d), 2.1 (BatchNorm2d)" in caught.value.reason
    assert "sfumato.models.replace_batchnorm" in caught.value.fix
    check_module(replace_batchnorm(model), IMAGES)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Linear(5, 2), "cannot take records of shape \\(4,\\)"),
        (lambda: nn.Linear(4, 2).double(), r"Call .float\(\) on the model"),
        (lambda: nn.LazyLinear(2), "no shape yet"),
        (lambda: Uncopyable(), "cannot be copied"),
    ],
)
def test_models_that_cannot_be_checked_are_refused(make: Callable[[], nn.Module], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        check_module(make(), ROWS)


class Uncopyable(nn.Module):
    def __deepcopy__(self, memo: object) -> Uncopyable:
        raise RuntimeError("no")


@pytest.mark.parametrize(("channels", "groups"), [(64, 32), (48, 24), (16, 16), (7, 7), (37, 1), (1, 1)])
def test_groups_divide_the_channels(channels: int, groups: int) -> None:
    norm = replace_batchnorm(nn.BatchNorm2d(channels))
    assert isinstance(norm, nn.GroupNorm) and norm.num_groups == groups


def test_weights_are_copied_and_the_old_model_is_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, eps=0.01), nn.BatchNorm2d(6, affine=False)).eval()
    nn.init.constant_(model[1].weight, 3.0)
    model[1].requires_grad_(False)
    fixed = replace_batchnorm(model)
    norm, plain = fixed[1], fixed[2]  # type: ignore[index]
    assert torch.equal(norm.weight, model[1].weight) and norm.weight is not model[1].weight
    assert not norm.weight.requires_grad and not norm.training and norm.eps == 0.01
    assert plain.weight is None
    assert isinstance(model[1], nn.BatchNorm2d)


def test_flat_features_keep_their_differences() -> None:
    """One group per feature would make every output zero."""
    model = replace_batchnorm(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)))
    assert float(model(ROWS).detach().abs().mean()) > 0.5
    check_module(model, ROWS)


def test_a_record_no_longer_depends_on_its_batch() -> None:
    model = replace_batchnorm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())).train()
    assert torch.allclose(model(IMAGES)[:1], model(IMAGES[:1]), atol=1e-5)
