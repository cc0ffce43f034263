"""Faster ways to the same step: gradients as products, and a max-pool before its ReLU."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato import Key, Records, Sgd, classification
from sfumato.engine.plan import Plan
from sfumato.local import products
from sfumato.local.gradients import SharpnessAware
from sfumato.local.task import Task
from sfumato.local.working_copy import working_copy
from sfumato.update import Layout

ROWS = 12


class Sum(nn.Module):
    """Two parameters with one gradient, which autograd gives as one tensor, and one that it gives as an expanded number."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Parameter(torch.full((3,), float(n))) for n in range(1, 4))
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x) + (self.one + self.two)[None] + self.three.sum()


class Twice(nn.Module):
    """One weight, used by two linear layers and once more on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.last = nn.Linear(6, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inner(torch.tanh(self.inner(x)))
        return self.last(hidden) + F.linear(x, self.last.weight * 2.0)


def seeded(make: type[nn.Module] | nn.Module) -> nn.Module:
    with Key.from_seed(1).seeding_torch():
        return make() if isinstance(make, type) else make


def trained(module: nn.Module, local: Sgd, plan: Plan, sizes: tuple[int, ...]) -> torch.Tensor:
    layout = Layout.of(module)
    params = layout.row(module)
    clients = [
        Records(Key.from_seed(i).normal(size, 6).float(), torch.arange(size) % 3) for i, size in enumerate(sizes)
    ]
    keys = [Key.from_seed(i).child("client") for i in range(len(sizes))]
    starts = params.expand(len(sizes), -1)
    return local.train(Task(plan.forward(module), layout, classification(3).loss, params, starts, clients, keys, 0))


@pytest.mark.parametrize("sharpness", [None, SharpnessAware(0.3)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(("plan", "sizes"), [(Plan(), (ROWS,)), (Plan("stacked", 3), (ROWS, 5, 1))])
def test_a_step_along_products_is_the_step_along_gradients(
    plan: Plan,
    sizes: tuple[int, ...],
    weight_decay: float,
    sharpness: SharpnessAware | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = seeded(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3, bias=False)))
    local = Sgd(lr=0.3, epochs=2, batch_size=4, weight_decay=weight_decay, gradient=sharpness)
    written_out = trained(module, local, plan, sizes)
    used: list[str] = []
    real = products.Products.descend

    def watched(self: products.Products, *args: object) -> object:
        used.extend(name for name, factors in self.of.items() if factors)
        return real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(products, "_LARGE", 1)
    monkeypatch.setattr(products.Products, "descend", watched)
    along_products = trained(module, local, plan, sizes)
    assert {"0.weight", "2.weight"} == set(used)
    assert torch.allclose(along_products, written_out, atol=1e-6)
    assert written_out.norm() > 0.1


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_a_weight_that_is_used_in_several_ways_gets_all_of_its_gradient(
    weight_decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, local = seeded(Twice), Sgd(lr=0.3, epochs=2, batch_size=4, weight_decay=weight_decay)
    written_out = trained(module, local, Plan(), (ROWS,))
    monkeypatch.setattr(products, "_LARGE", 1)
    assert torch.allclose(trained(module, local, Plan(), (ROWS,)), written_out, atol=1e-6)


@pytest.mark.parametrize("local", [{"weight_decay": 0.2}, {"momentum": 0.9}, {"weight_decay": 0.2, "momentum": 0.9}])
def test_parameters_with_one_gradient_are_stepped_one_by_one(local: dict[str, float]) -> None:
    module = seeded(Sum)
    found = trained(module, Sgd(lr=0.1, steps=4, batch_size=ROWS, **local), Plan(), (ROWS,))  # type: ignore[arg-type]
    x, y = Key.from_seed(0).normal(ROWS, 6).float(), torch.arange(ROWS) % 3
    start = Layout.of(module).row(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, **local)  # type: ignore[arg-type]
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    assert torch.allclose(found[0], Layout.of(module).row(module) - start, atol=1e-6)


def test_a_pool_before_its_relu_is_the_same_function_with_the_same_gradients() -> None:
    module = seeded(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3, padding=1), nn.ReLU(inplace=True),
                      nn.MaxPool2d(3, stride=2, padding=1), nn.Flatten(), nn.LazyLinear(3))
    )  # fmt: skip
    x = Key.from_seed(3).normal(7, 1, 12, 12).float()
    x[0] = 0.0  # ties
    module(x)
    copy = working_copy(module)
    assert [type(part) for part in copy[1:3]] == [nn.MaxPool2d, nn.ReLU]
    assert [name for name, _ in copy.named_parameters()] == [name for name, _ in module.named_parameters()]
    for outputs in zip(gradients(module, x), gradients(copy, x), strict=True):
        assert torch.equal(*outputs)


def gradients(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    out = module(x)
    return [out, *torch.autograd.grad(out.square().sum(), list(module.parameters()))]


def test_what_is_watched_or_different_stays_in_place() -> None:
    watched = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    watched[0].register_forward_hook(lambda *args: None)
    for module in (watched, nn.Sequential(nn.ReLU(), nn.AvgPool2d(2)), nn.Sequential(nn.GELU(), nn.MaxPool2d(2))):
        assert [type(part) for part in working_copy(module)] == [type(part) for part in module]
