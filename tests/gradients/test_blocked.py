"""Convolutions in oneDNN's layout take the steps of autograd, and nothing that is not finite gets lost in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from sfumato import Key, Records, Sgd, classification
from sfumato.engine.plan import Plan
from sfumato.gradients import blocked
from sfumato.gradients.chain import Chain
from sfumato.gradients.links import Link
from sfumato.gradients.product import written_out
from sfumato.local.penalty import NormPenalty
from sfumato.local.sharpness import SharpnessAware
from sfumato.local.task import Task
from sfumato.update import Layout
from tests.gradients.test_chain import by_autograd, seeded, trained

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
Made = Callable[[], nn.Module]
SHAPE = (1, 12, 12)


def usual() -> nn.Module:
    convolutions = (
        nn.Conv2d(1, 5, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(5, 17, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(68, 6), nn.ReLU(), nn.Linear(6, 3))


def unusual() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, (3, 2), (2, 1), (1, 0), bias=False), nn.MaxPool2d((2, 3), stride=1), nn.ReLU(), nn.ReLU(),
        nn.MaxPool2d(3, 2), nn.MaxPool2d((1, 2), 1), nn.Conv2d(4, 3, (1, 2), dilation=(1, 2)), nn.MaxPool2d((2, 1)),
        nn.Conv2d(3, 6, 1), nn.Flatten(), nn.Tanh(), nn.Linear(6, 3),
    )  # fmt: skip


def relu_last() -> nn.Module:
    first = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2, 3), nn.ReLU()
    return nn.Sequential(*first, nn.Conv2d(4, 18, 2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each convolution in the layout got. Small ones go through it too, on any machine."""
    found: list[int] = []
    forward = blocked._Convolution.forward

    def watched(self: Any, x: torch.Tensor, own: Any) -> Any:
        found.append(len(x))
        return forward(self, x, own)

    monkeypatch.setattr(blocked._Convolution, "forward", watched)
    monkeypatch.setattr(blocked, "_OPERATIONS", 0)
    monkeypatch.setattr(blocked, "_RECORDS", 4)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    return found


WAYS: list[dict[str, Any]] = [
    {},
    {"momentum": 0.5, "weight_decay": 0.1},
    {"penalties": (NormPenalty(1.0),)},
    {"gradient": SharpnessAware(0.3)},
    {"gradient": SharpnessAware(0.3, adaptive=True), "weight_decay": 0.1, "project": 0.5},
]


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("make", [usual, unusual, relu_last])
def test_the_steps_are_those_of_autograd(make: Made, options: dict[str, Any], calls: list[int]) -> None:
    module = seeded(make)
    task = module, Sgd(lr=0.2, epochs=2, batch_size=4, **options), Plan(), (13,), SHAPE
    found, expected = trained(*task), by_autograd(*task)
    convolutions = sum(isinstance(layer, nn.Conv2d) for layer in module)  # type: ignore[arg-type]
    passes = 6 * (2 if "gradient" in options else 1)  # the fourth batch of each epoch has one record
    assert calls == [4] * passes * convolutions
    assert torch.allclose(found, expected, atol=2e-6) and expected.norm() > 0.1


@pytest.mark.parametrize("make", [usual, unusual, relu_last])
def test_outputs_and_gradients_at_every_layer_are_those_of_autograd(make: Made, calls: list[int]) -> None:
    module = seeded(make)
    x = Key.from_seed(3).normal(7, *SHAPE).float()
    x[0] = 0.0  # ties
    chain, parameters = Chain.for_records(module, x, batch=7), dict(module.named_parameters())
    assert chain is not None
    out = module(x)
    expected = torch.autograd.grad(out.square().sum(), list(parameters.values()))
    with torch.no_grad():
        way = chain.forward({name: p.detach()[None] for name, p in parameters.items()}, x)
        torch.testing.assert_close(way.outputs, out, rtol=1e-5, atol=1e-6)
        found = {}
        for link, g, kept, own in way.back(2.0 * way.outputs):
            found |= {link.names[name]: part for name, part in link.gradients(g, kept, own).items()}
    assert calls and found.keys() == parameters.keys()
    for name, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(written_out([found[name]])[0][0], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("last", "used"), [(1, False), (2, True)])
def test_the_last_batch_may_be_half_as_large(last: int, used: bool, calls: list[int]) -> None:
    trained(seeded(usual), Sgd(lr=0.1, epochs=1, batch_size=4), Plan(), (4 + last,), SHAPE)
    assert calls == [4, 4, *[last] * 2 * used]


def broken(place: str, value: float) -> tuple[nn.Module, Records]:
    """A model and a client, of which one number is broken; the second convolution may hide the first."""
    module, x = seeded(usual), Key.from_seed(0).normal(8, *SHAPE).float()
    with torch.no_grad():
        module[3].weight.zero_()  # type: ignore[operator,index,union-attr]
        if place == "records":
            x[2, 0, 5, 5] = value
        else:
            module.get_parameter(place).view(-1)[0] = value
    return module, Records(x, torch.arange(8) % 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -3e38, 2e30])
@pytest.mark.parametrize("place", ["records", "0.weight", "0.bias", "3.weight", "3.bias"])
def test_what_is_not_finite_takes_the_other_way(place: str, value: float, calls: list[int]) -> None:
    module, records = broken(place, value)
    layout = Layout.of(module)
    params = layout.row(module)

    def row() -> torch.Tensor:
        local = Sgd(lr=0.1, steps=1, batch_size=8)
        task = Task(Plan().forward(module), layout, classification(3).loss, params, params[None], [records], [key], 0)
        return local.train(task)

    key = Key.from_seed(1)
    found = row()
    assert not calls
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocked, "_RECORDS", 100)  # channels last from the start
        torch.testing.assert_close(found, row(), rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stays_so(value: float, calls: list[int]) -> None:
    module = seeded(usual)
    x = Key.from_seed(3).normal(7, *SHAPE).float()
    chain = Chain.for_records(module, x, batch=7)
    assert chain is not None
    with torch.no_grad():
        way = chain.forward({name: p.detach()[None] for name, p in module.named_parameters()}, x)
        for link, g, kept, own in way.back(torch.full_like(way.outputs, value)):
            gradients = written_out(list(link.gradients(g, kept, own).values()))
            assert not any(gradient.isfinite().all() for gradient in gradients)
    assert calls


@pytest.mark.parametrize("seed", range(20))
def test_no_number_exceeds_its_bound(seed: int, calls: list[int]) -> None:
    module, x = usual(), 10.0 ** (seed % 5) * Key.from_seed(seed).normal(5, *SHAPE).float()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(Key.from_seed(seed).child("weights").normal(*p.shape).sign() if seed % 2 else p * seed)
    chain = Chain.for_records(module, x, batch=5)
    assert chain is not None
    found = list(blocked.bounds(chain.blocked, {name: p.detach()[None] for name, p in module.named_parameters()}, x))
    values = [x, module[0](x.sign() * x.abs().max()), module[:4](x)]  # type: ignore[operator,index]
    assert len(found) == 3
    assert all(
        float(value.detach().abs().max()) <= bound * (1 + 1e-6) for value, bound in zip(values, found, strict=True)
    )


def test_the_bound_is_reached() -> None:
    module, x = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 2)), torch.full((32, 1, 3, 3), -3.0)
    nn.init.constant_(module[0].weight, -0.5)  # type: ignore[arg-type]
    nn.init.constant_(module[0].bias, 1.0)  # type: ignore[arg-type]
    links = (blocked._Convolution(module[0], {"weight": "0.weight", "bias": "0.bias"}),)
    assert list(blocked.bounds(links, {n: p[None] for n, p in module.named_parameters()}, x)) == [3.0, 7.0]
    assert float(module[0](x).detach().max()) == 7.0


def flat(*layers: nn.Module) -> Made:
    return lambda: nn.Sequential(nn.Conv2d(1, 4, 3), *layers, nn.Flatten(), nn.LazyLinear(3))


@pytest.mark.parametrize(
    "make",
    [
        flat(),
        flat(nn.Conv2d(4, 4, 3), nn.MaxPool2d(2)),
        flat(nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.MaxPool2d(2)),
        flat(nn.MaxPool2d(2), nn.Conv2d(4, 4, 2, 2, dilation=2)),
        flat(nn.MaxPool2d(2), nn.Tanh()),
        flat(nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, groups=2)),
        flat(nn.MaxPool2d(3, ceil_mode=True)),
        flat(nn.MaxPool2d(2, padding=1)),
        flat(nn.MaxPool2d(2, dilation=2)),
        flat(nn.MaxPool2d(2), nn.Linear(5, 4)),
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2)),
        lambda: nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(3)),
        lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)),
    ],
)
def test_what_does_not_go_through_the_layout(make: Made, calls: list[int]) -> None:
    module, x = seeded(make), torch.ones(4, *SHAPE)
    module(x)
    chain = Chain.for_records(module, x, batch=4)
    assert chain is not None and chain.blocked == ()


class Named(torch.Tensor):
    """Some libraries have tensors of their own kind, which have no such layout."""


def test_when_the_layout_is_not_used(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = usual(), torch.ones(4, *SHAPE)

    def used(x: torch.Tensor, batch: int = 4) -> bool:
        chain = Chain.for_records(module, x, batch=batch)
        return chain is not None and bool(chain.blocked)

    chain = Chain.of(module)
    assert used(x) and not used(x.double()) and not used(x.as_subclass(Named))
    assert chain is not None and not blocked.blocked(chain.links, x.to("meta"), 4)
    assert not used(x, batch=3) and not used(x[:3])
    with torch.inference_mode():
        assert not used(x)
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
        assert not used(x)
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
        assert not used(x)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert not used(x)


@pytest.mark.parametrize("last", [1, 900])
def test_the_largest_convolution_decides(last: int, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    layers = nn.Conv2d(1, 5, 3, (2, 1)), nn.MaxPool2d(2, stride=(1, 3)), nn.Conv2d(5, last, 1, 3), nn.Flatten()
    links, x = [_link(layer) for layer in layers], torch.ones(4, 1, 12, 12)
    most = 2 * max(72 * 45, 24 / 9 * 5 * last)  # places that it visits times weights
    monkeypatch.setattr(blocked, "_OPERATIONS", most)
    assert blocked.blocked(links, x, 4)
    monkeypatch.setattr(blocked, "_OPERATIONS", most + 1)
    assert not blocked.blocked(links, x, 4)


def _link(layer: nn.Module) -> Link:
    chain = Chain.of(nn.Sequential(layer, nn.Linear(1, 1)))
    assert chain is not None
    return chain.links[0]
