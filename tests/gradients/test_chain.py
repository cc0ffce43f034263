"""The same step without autograd: a chain of layers against autograd, and what is no chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

from sfumato import Key, Records, Sgd, classification, measures
from sfumato.engine.plan import Plan
from sfumato.errors import BadValue
from sfumato.gradients.chain import Chain
from sfumato.gradients.product import Product
from sfumato.gradients.recordwise import gradient_at_outputs
from sfumato.local.penalty import NormPenalty
from sfumato.local.sharpness import SharpnessAware
from sfumato.local.task import Task
from sfumato.update import Layout

ROWS = 12


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with Key.from_seed(1).seeding_torch():
        return make()


def perceptron() -> nn.Module:
    inner = nn.Sequential(nn.Identity(), nn.Linear(8, 3, bias=False))
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), inner)


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Tanh(), nn.Conv2d(4, 6, (3, 2), (1, 2), 1, groups=2),
        nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), nn.Conv2d(6, 5, 1, bias=False), nn.ReLU(),
        nn.Flatten(), nn.Linear(30, 7), nn.ReLU(), nn.ReLU(), nn.Linear(7, 3), nn.Tanh(),
    )  # fmt: skip


def trained(module: nn.Module, local: Sgd, plan: Plan, sizes: tuple[int, ...], shape: tuple[int, ...]) -> torch.Tensor:
    layout = Layout.of(module)
    params = layout.row(module)
    clients = [
        Records(Key.from_seed(i).normal(size, *shape).float(), torch.arange(size) % 3) for i, size in enumerate(sizes)
    ]
    before = [records.x.clone() for records in clients]
    keys = [Key.from_seed(i).child("client") for i in range(len(sizes))]
    starts = params.expand(len(sizes), -1)
    rows = local.train(Task(plan.forward(module), layout, classification(3).loss, params, starts, clients, keys, 0))
    assert all(torch.equal(records.x, x) for records, x in zip(clients, before, strict=True))
    return rows


def by_autograd(*task: Any) -> torch.Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chain, "of", staticmethod(lambda module: None))
        return trained(*task)


WAYS: list[dict[str, Any]] = [
    {},
    {"weight_decay": 0.1},
    {"momentum": 0.5, "weight_decay": 0.1},
    {"penalties": (NormPenalty(1.0),)},
    {"gradient": SharpnessAware(0.3)},
    {"gradient": SharpnessAware(0.3, adaptive=True), "weight_decay": 0.1, "project": 0.5},
]


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize(
    ("make", "shape", "plan", "sizes"),
    [
        (perceptron, (2, 3), Plan(), (ROWS,)),
        (perceptron, (6,), Plan(), (1,)),
        (perceptron, (6,), Plan("stacked", 3), (ROWS, 5, 1)),
        (images, (1, 12, 12), Plan(), (ROWS,)),
    ],
    ids=["records", "one record", "stacked", "images"],
)
def test_a_chain_takes_the_steps_of_autograd(
    make: Callable[[], nn.Module], shape: tuple[int, ...], plan: Plan, sizes: tuple[int, ...], options: dict[str, Any]
) -> None:
    module = seeded(make)
    task = module, Sgd(lr=0.3, epochs=2, batch_size=4, **options), plan, sizes, shape
    assert Chain.of(module) is not None
    found, expected = trained(*task), by_autograd(*task)
    assert torch.allclose(found, expected, atol=2e-6) and expected.norm() > 1e-2


def test_weight_decay_where_every_gradient_is_a_product() -> None:
    module = seeded(lambda: nn.Sequential(nn.Linear(6, 4, bias=False), nn.ReLU(), nn.Linear(4, 3, bias=False)))
    task = module, Sgd(lr=0.3, epochs=2, batch_size=4, weight_decay=0.1), Plan(), (ROWS,), (6,)
    assert torch.allclose(trained(*task), by_autograd(*task), atol=2e-6)


def tanhs() -> nn.Module:
    two = nn.Tanh(), nn.Identity(), nn.Tanh()
    return nn.Sequential(
        nn.Linear(6, 5), *two, nn.Linear(5, 5), nn.Tanh(), nn.ReLU(), nn.Tanh(), nn.Flatten(), nn.Tanh()
    )


def bias_first() -> nn.Module:
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(300, 3))
    prune.l1_unstructured(module[0], "weight", 0.5)
    return nn.Sequential(prune.remove(module[0], "weight"), *module[1:])


@pytest.mark.parametrize("make", [images, perceptron, tanhs, bias_first])
def test_outputs_and_gradients_at_every_layer_are_those_of_autograd(make: Callable[[], nn.Module]) -> None:
    module = seeded(make)
    x = Key.from_seed(3).normal(7, *((1, 12, 12) if make in (images, bias_first) else (6,))).float()
    x[0] = 0.0  # ties
    chain = Chain.of(module)
    assert chain is not None and chain.takes(x)
    out = module(x)
    names = [name for name, _ in module.named_parameters()]
    expected = dict(zip(names, torch.autograd.grad(out.square().sum(), list(module.parameters())), strict=True))
    with torch.no_grad():
        way = chain.forward({name: p.detach()[None] for name, p in module.named_parameters()}, x)
        assert torch.allclose(way.outputs, out, atol=1e-6)
        layers = []
        for link, g, kept, own in way.back(2.0 * way.outputs):
            layers.append(link.layer)
            found = link.gradients(g, kept, own)
            assert found.keys() == link.names.keys()
            for name, part in found.items():
                gradient = part.full() if isinstance(part, Product) else part
                torch.testing.assert_close(gradient[0], expected[link.names[name]], rtol=1e-4, atol=1e-5)
    assert layers == [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)][::-1]


def _hook() -> nn.Module:
    module = perceptron()
    module[1].register_forward_hook(lambda *args: None)  # type: ignore[operator,index]
    return module


def _own_forward() -> nn.Module:
    module = perceptron()
    module[1].forward = lambda x: x[:, :3].repeat(1, 3)[:, :8]  # type: ignore[operator,index]
    return module


def _frozen() -> nn.Module:
    module = perceptron()
    module[1].bias.requires_grad_(False)  # type: ignore[operator,index]
    return module


def _twice() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer)


def _tied() -> nn.Module:
    one, two = nn.Linear(6, 6), nn.Linear(6, 6)
    two.weight = one.weight
    return nn.Sequential(one, two)


def _extra() -> nn.Module:
    module = perceptron()
    module.extra = nn.Parameter(torch.ones(1))
    return module


def _buffer() -> nn.Module:
    layer = nn.Linear(6, 3)
    weight = layer.weight.data
    del layer.weight
    layer.register_buffer("weight", weight)
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(3, 3))


class Doubled(nn.Sequential):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(2.0 * super().forward(input))


NO_CHAIN: dict[str, Callable[[], nn.Module]] = {
    "a hook": _hook,
    "another forward": _own_forward,
    "a frozen bias": _frozen,
    "a layer twice": _twice,
    "tied weights": _tied,
    "a subclass": lambda: Doubled(nn.Linear(6, 3)),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)),
    "a norm": lambda: nn.Sequential(nn.Linear(6, 3), nn.LayerNorm(3)),
    "a first layer that writes": lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(6, 3)),
    "records run together": lambda: nn.Sequential(nn.Linear(6, 3), nn.Flatten(0)),
    "padding by name": lambda: nn.Conv2d(1, 2, 3, padding="same"),
    "circular padding": lambda: nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"),
    "indices": lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, return_indices=True)),
    "two types": lambda: nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 2).double()),
    "a parameter of nobody": _extra,
    "a weight that is a buffer": _buffer,
    "nothing to train": lambda: nn.Sequential(nn.Tanh()),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)),
}


@pytest.mark.parametrize("name", NO_CHAIN)
def test_what_is_no_chain(name: str) -> None:
    assert Chain.of(NO_CHAIN[name]()) is None


def test_a_hook_on_all_modules_is_seen() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *args: None)
    assert Chain.of(perceptron()) is None
    handle.remove()
    assert Chain.of(perceptron()) is not None


def test_a_window_of_nothing_but_padding_is_not_lifted() -> None:
    pool = nn.MaxPool2d(2, stride=1, padding=1, dilation=3)
    module = seeded(lambda: nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), pool))
    chain, x = Chain.of(module), torch.ones(1, 1, 2, 2)
    assert chain is not None
    with torch.no_grad():
        found = chain.forward({name: p.detach()[None] for name, p in module.named_parameters()}, x).outputs
        assert torch.equal(found, module(x))


def test_what_a_chain_does_not_take() -> None:
    convolution, linear = Chain.of(nn.Conv2d(1, 2, 3)), Chain.of(nn.Linear(3, 2))
    assert convolution is not None and linear is not None
    assert convolution.takes(torch.ones(4, 1, 5, 5)) and linear.takes(torch.ones(8, 3), clients=4)
    assert not convolution.takes(torch.ones(4, 1, 5, 5), clients=2)
    assert not convolution.takes(torch.ones(1, 5, 5))  # torch would take the records for channels
    with torch.autocast("cpu"):
        assert not linear.takes(torch.ones(8, 3))


class Shared(nn.Module):
    """Parameters whose gradients autograd gives as one tensor, as parts of one, or as an expanded number."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Parameter(torch.full((3,), float(n))) for n in range(1, 4))
        self.head, self.tail = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2))
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x) + (self.one + self.two + torch.cat([self.head, self.tail]))[None] + self.three.sum()


@pytest.mark.parametrize("local", [{"weight_decay": 0.2}, {"momentum": 0.9}, {"weight_decay": 0.2, "momentum": 0.9}])
def test_parameters_that_share_a_gradient_are_stepped_one_by_one(local: dict[str, float]) -> None:
    module = seeded(Shared)
    found = trained(module, Sgd(lr=0.1, steps=4, batch_size=ROWS, **local), Plan(), (ROWS,), (6,))  # type: ignore[arg-type]
    x, y = Key.from_seed(0).normal(ROWS, 6).float(), torch.arange(ROWS) % 3
    start = Layout.of(module).row(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, **local)  # type: ignore[arg-type]
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    assert torch.allclose(found[0], Layout.of(module).row(module) - start, atol=1e-6)


class Absolute:
    """A loss that is an object without a hash."""

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (outputs - y[:, None]).abs().sum(1)


@pytest.mark.parametrize("weights", [0.25, torch.tensor([0.5, 0.0, 2.0, 1.0], dtype=torch.float64)])
@pytest.mark.parametrize("loss", [measures.cross_entropy, Absolute(), lambda outputs, y: outputs[:, 0]])
def test_the_gradient_at_the_outputs_is_that_of_autograd(loss: Any, weights: Any) -> None:
    outputs = (3.0 * Key.from_seed(5).normal(4, 3)).float().requires_grad_()
    y = torch.tensor([0, 2, 2, 1])
    (expected,) = torch.autograd.grad((loss(outputs, y) * weights).sum(), outputs)
    found = gradient_at_outputs(loss, outputs.detach(), y, weights, size=2)
    torch.testing.assert_close(found, expected.float(), rtol=1e-6, atol=1e-7)
    found.zero_()  # it is nobody else's


@pytest.mark.parametrize(
    "y", [torch.tensor([0, 1, -100, 1]), torch.tensor([0, 1, 3, 1]), torch.ones(4), torch.ones(4, 1)]
)
def test_no_target_is_passed_over(y: torch.Tensor) -> None:
    with pytest.raises((BadValue, RuntimeError, IndexError)):
        gradient_at_outputs(measures.cross_entropy, torch.zeros(4, 3), y)


@pytest.mark.parametrize(("records", "width", "largest"), [(3, 50, 3 * 3), (3000, 5, 5 * 5)])
def test_the_norm_of_a_product_writes_the_smaller_thing(
    records: int, width: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = Product(*(Key.from_seed(n).normal(2, records, width).float() for n in range(2)))
    expected = product.full().double().flatten(1).square().sum(1)
    written: list[int] = []
    bmm = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda *two: (written.append(bmm(*two)[0].numel()), bmm(*two))[1])
    torch.testing.assert_close(product.squares(), expected, rtol=1e-4, atol=0.0)
    assert max(written) == largest
