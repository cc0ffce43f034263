"""Faster ways to the same step: gradients as products, and a max-pool before its ReLU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato import Key, Records, Sgd, classification
from sfumato.engine.plan import Plan
from sfumato.local import products
from sfumato.local.gradients import NormPenalty, SharpnessAware
from sfumato.local.task import Task
from sfumato.local.working_copy import working_copy
from sfumato.update import Layout

ROWS = 12


class Shared(nn.Module):
    """Parameters whose gradients autograd gives as one tensor, as parts of one, or as an expanded number."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Parameter(torch.full((3,), float(n))) for n in range(1, 4))
        self.head, self.tail = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2))
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x) + (self.one + self.two + torch.cat([self.head, self.tail]))[None] + self.three.sum()


class OwnForward(nn.Module):
    """A linear layer whose gradient the forward pass itself asks for, by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        energy = F.linear(input=x, weight=self.inner.weight).square().sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return self.last(force)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with Key.from_seed(1).seeding_torch():
        return make()


def perceptron(inplace: bool = False) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace), nn.Sequential(nn.Dropout(0.0), nn.Linear(8, 3, bias=False)))


def trained(module: nn.Module, local: Sgd, plan: Plan, sizes: tuple[int, ...]) -> torch.Tensor:
    layout = Layout.of(module)
    params = layout.row(module)
    clients = [
        Records(Key.from_seed(i).normal(size, 6).float(), torch.arange(size) % 3) for i, size in enumerate(sizes)
    ]
    keys = [Key.from_seed(i).child("client") for i in range(len(sizes))]
    starts = params.expand(len(sizes), -1)
    return local.train(Task(plan.forward(module), layout, classification(3).loss, params, starts, clients, keys, 0))


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The weights whose products were used, when even small ones are."""
    found: list[str] = []
    real = products.Products.descend

    def watched(self: products.Products, *args: Any) -> Any:
        found.extend(name for name, factors in self.of.items() if factors)
        return real(self, *args)

    monkeypatch.setattr(products, "_LARGE", 1)
    monkeypatch.setattr(products.Products, "descend", watched)
    return found


def written_out(module: nn.Module, local: Sgd, plan: Plan, sizes: tuple[int, ...]) -> torch.Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_LARGE", 10**9)
        return trained(module, local, plan, sizes)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("sharpness", [None, SharpnessAware(0.3)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(("plan", "sizes"), [(Plan(), (ROWS,)), (Plan(), (1,)), (Plan("stacked", 3), (ROWS, 5, 1))])
def test_a_step_along_products_is_the_step_along_gradients(
    plan: Plan, sizes: tuple[int, ...], weight_decay: float, sharpness: Any, inplace: bool, used: list[str]
) -> None:
    module = seeded(lambda: perceptron(inplace))
    local = Sgd(lr=0.3, epochs=2, batch_size=4, weight_decay=weight_decay, gradient=sharpness)
    found = trained(module, local, plan, sizes)
    assert set(used) == {"0.weight", "2.1.weight"}
    expected = written_out(module, local, plan, sizes)
    assert torch.allclose(found, expected, atol=1e-6) and expected.norm() > 0.1


@pytest.mark.parametrize("plan", [Plan(), Plan("stacked", 3)], ids=["loop", "stacked"])
def test_a_frozen_bias_and_a_layer_that_is_used_twice(plan: Plan, used: list[str]) -> None:
    def make() -> nn.Module:
        twice, last = nn.Linear(6, 6), nn.Linear(6, 3)
        last.bias.requires_grad_(False)
        return nn.Sequential(twice, nn.Tanh(), twice, nn.Tanh(), last)

    local, sizes = Sgd(lr=0.3, epochs=2, batch_size=4), (ROWS,) if plan.path == "loop" else (ROWS, 7, 5)
    found = trained(seeded(make), local, plan, sizes)
    assert set(used) == ({"0.weight"} if plan.path == "loop" else set())  # vmap takes what no rule can stack
    assert torch.allclose(found, written_out(seeded(make), local, plan, sizes), atol=1e-6)
    apart = [written_out(seeded(make), local, Plan(), (size,)) for size in sizes[:1]]
    assert torch.allclose(found[0], apart[0][0], atol=1e-6)


@pytest.mark.parametrize("change", ["own forward", "hook", "momentum", "penalty"])
def test_what_is_no_plain_chain_or_step_is_written_out(change: str, used: list[str]) -> None:
    module = seeded(OwnForward if change == "own forward" else perceptron)
    local = Sgd(lr=0.3, epochs=2, batch_size=4)
    if change == "hook":
        module[0].register_forward_hook(lambda *args: None)  # type: ignore[operator,index]
    local = replace(local, momentum=0.5) if change == "momentum" else local
    local = replace(local, penalties=(NormPenalty(1.0),)) if change == "penalty" else local
    found = trained(module, local, Plan(), (ROWS,))
    assert not used
    assert torch.allclose(found, written_out(module, local, Plan(), (ROWS,)), atol=1e-6)


@pytest.mark.parametrize("local", [{"weight_decay": 0.2}, {"momentum": 0.9}, {"weight_decay": 0.2, "momentum": 0.9}])
def test_parameters_that_share_a_gradient_are_stepped_one_by_one(local: dict[str, float]) -> None:
    module = seeded(Shared)
    found = trained(module, Sgd(lr=0.1, steps=4, batch_size=ROWS, **local), Plan(), (ROWS,))  # type: ignore[arg-type]
    x, y = Key.from_seed(0).normal(ROWS, 6).float(), torch.arange(ROWS) % 3
    start = Layout.of(module).row(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, **local)  # type: ignore[arg-type]
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    assert torch.allclose(found[0], Layout.of(module).row(module) - start, atol=1e-6)


class Skips(nn.Module):
    """Reads a Sequential layer by layer, and keeps what comes before each pool."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x
        for layer in self.layers:
            kept = kept if isinstance(layer, nn.MaxPool2d) else layer(kept)
        return torch.cat([kept.flatten(1), self.layers[:2](x).flatten(1), self.layers(x).flatten(1)], dim=1)


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3, padding=1), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1), nn.Flatten(), nn.Linear(45, 3),
    )  # fmt: skip


@pytest.mark.parametrize("make", [images, Skips])
def test_a_working_copy_is_the_same_function_with_the_same_gradients(make: Callable[[], nn.Module]) -> None:
    module = seeded(make)
    x = Key.from_seed(3).normal(7, 1, 12, 12).float()
    x[0] = 0.0  # ties
    copy = working_copy(module)
    assert [name for name, _ in copy.named_parameters()] == [name for name, _ in module.named_parameters()]
    assert [type(part) for part in copy.modules() if part is not copy][1:] == [
        type(part) for part in module.modules() if part is not module
    ][1:]
    for outputs in zip(gradients(module, x), gradients(copy, x), strict=True):
        assert torch.equal(*outputs)


def gradients(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    out = module(x)
    return [out, *torch.autograd.grad(out.square().sum(), list(module.parameters()))]


def test_the_relu_of_a_working_copy_sees_what_the_pool_leaves() -> None:
    seen: list[torch.Size] = []
    relu = torch.relu
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "relu", lambda x: (seen.append(x.shape), relu(x))[1])
        layers = (nn.ReLU(), nn.MaxPool2d(2)), (nn.ReLU(), nn.AvgPool2d(2)), (nn.ReLU(), nn.MaxPool2d(2, padding=1))
        for two in layers:
            working_copy(nn.Sequential(*two))(torch.ones(1, 1, 4, 4))
    assert seen == [(1, 1, 2, 2), (1, 1, 4, 4), (1, 1, 4, 4)]
