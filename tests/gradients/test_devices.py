"""Gradients follow their inputs' device: each kernel on torch's meta device, where nothing has values, and whole sums on one that
is pretended, where they have those of the CPU.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from sfumato.errors import BadValue, UnsoundRound
from sfumato.gradients import (
    Batch,
    ClippedSum,
    DropoutMasks,
    MeanGradients,
    OneByOne,
    Stacked,
    check_records_do_not_mix,
    written_out,
)
from sfumato.gradients.layer_rules import RULES
from sfumato.gradients.masks import KeyedMasks
from sfumato.gradients.per_record_passes import chained, one_by_one, one_pass, one_pass_channels_last, vectorised
from sfumato.gradients.problem import NoRule, Problem
from sfumato.gradients.product import Product
from sfumato.gradients.record_gradients import (
    Dyads,
    Outer,
    Piece,
    Rows,
    Scattered,
    add_pieces,
    record_norms,
    record_sizes,
)
from sfumato.key import Key
from sfumato.measures import cross_entropy
from sfumato.update import Layout
from tests.pretend_device import MixedDevices, pretend_device, values

CLASSES = 3
WAYS = (chained, one_pass, one_pass_channels_last, vectorised, one_by_one)


class Unused(nn.Module):
    """A parameter that no record reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(6, CLASSES), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)  # type: ignore[no-any-return]


class Own(nn.Module):
    """A parameter without a layer, which no rule covers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.last = nn.Parameter(torch.ones(6)), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x * self.scale)  # type: ignore[no-any-return]


class Viewed(nn.Module):
    """A view of channels, which must come first for it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 2, 3), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).view(x.shape[0], -1))  # type: ignore[no-any-return]


class LastState(nn.Module):
    """What vmap batches one by one itself."""

    def __init__(self) -> None:
        super().__init__()
        self.states, self.last = nn.LSTM(6, 4, batch_first=True), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.states(x)[0][:, -1])  # type: ignore[no-any-return]


def flat(*layers: nn.Module, width: int) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, CLASSES))


# By name: a module and the shape of its records; whole numbers where the shape says so.
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES)), (6,)),
    "cnn": (lambda: flat(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), width=16), (1, 6, 6)),
    "misread": (lambda: flat(nn.Conv2d(1, 2, 3, stride=(1, 2)), width=16), (1, 6, 6)),
    "groups": (lambda: flat(nn.Conv2d(2, 4, 3, groups=2, padding=1, padding_mode="circular"), width=64), (2, 4, 4)),
    "conv1d": (lambda: flat(nn.Conv1d(2, 3, 3), nn.InstanceNorm1d(3, affine=True), width=12), (2, 6)),
    "conv3d": (lambda: flat(nn.Conv3d(1, 2, 2), nn.InstanceNorm3d(2, affine=True), width=54), (1, 4, 4, 4)),
    "norms": (lambda: flat(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), width=64), (1, 6, 6)),
    "sequence": (lambda: flat(nn.Linear(4, 5), nn.LayerNorm(5), nn.RMSNorm(5), width=15), (3, 4)),
    "long sequence": (lambda: flat(nn.Linear(64, 48), width=96), (2, 64)),
    "words": (lambda: flat(nn.Embedding(7, 4, padding_idx=0), width=20), (5,)),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, CLASSES)), (6,)),
    "unused": (Unused, (6,)),
    "own": (Own, (6,)),
    "view": (Viewed, (1, 6, 6)),
    "recurrent": (LastState, (4, 6)),
}  # fmt: skip


def made(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A module, and records for it."""
    make, shape = MODULES[name]
    with Key.from_seed(0).child(name).seeding_torch():
        module, x = make(), torch.randn(7, *shape)
    if name == "words":
        x = torch.arange(35).reshape(7, 5) % 7
    return module, x, torch.arange(7) % CLASSES


def plain_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """A loss whose gradient only autograd knows."""
    return F.cross_entropy(outputs, y, reduction="none")


def test_every_layer_rule_is_tried() -> None:
    tried = {type(layer) for make, _ in MODULES.values() for layer in make().modules()}
    assert RULES.keys() <= tried


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", MODULES)
def test_each_way_stays_on_the_meta_device(name: str, way: Callable[..., dict[str, Piece]]) -> None:
    module, x, y = made(name)
    if way is vectorised and name == "recurrent":
        pytest.skip("it is never taken")
    module, x, y = module.to("meta"), x.to("meta"), y.to("meta")
    layout = Layout.of(module)
    problem = replace(Problem.of(module, layout, plain_loss), masks=KeyedMasks(Key.from_seed(0).generator()))
    total = torch.zeros(layout.dimension, device="meta")
    try:
        pieces = way(problem, layout.row(module), x, y)
        norms, sizes = record_norms(pieces, x), record_sizes(pieces, x)
    except NoRule:
        pytest.skip("no rule covers it")
    except (NotImplementedError, RuntimeError) as error:
        if "meta tensors" not in str(error).lower():
            raise
        pytest.skip("it asks for a value: below it is tried with values")
    add_pieces(total, layout, pieces, norms)
    assert norms.device == sizes.device == torch.device("meta")
    assert {
        part.device.type for piece in pieces.values() for part in vars(piece).values() if isinstance(part, Tensor)
    } == {"meta"}


def test_no_gradients_have_norms_where_the_records_are() -> None:
    assert record_norms({}, torch.zeros(3, 2, device="meta")).is_meta
    assert record_sizes({}, torch.zeros(3, 2, device="meta")).is_meta


def pieces_on(device: str) -> dict[str, tuple[Piece, tuple[int, ...]]]:
    def some(*shape: int) -> Tensor:
        return torch.zeros(shape, device=device)

    numbers = torch.zeros(6, dtype=torch.int64, device=device)
    return {
        "rows": (Rows(some(4, 15)), (3, 5)),
        "rows of a convolution": (Rows(some(4, 54), (3, 3)), (3, 2, 3, 3)),
        "dyads": (Dyads(some(4, 5), some(4, 3)), (3, 5)),
        "outer": (Outer(some(4, 1, 6, 5), some(4, 1, 6, 3)), (3, 5)),
        "outer of a convolution": (Outer(some(4, 1, 6, 18), some(4, 1, 6, 3), (3, 3)), (3, 2, 3, 3)),
        "scattered": (Scattered(some(6, 5), numbers, numbers, 4), (3, 5)),
    }


@pytest.mark.parametrize("name", pieces_on("meta"))
def test_pieces_of_cuda_are_added_on_cuda(name: str) -> None:
    """With torch's own stand-ins for CUDA tensors, which say what a kernel gives and where; some builds lack what they need."""
    try:
        with FakeTensorMode():
            piece, shape = pieces_on("cuda")[name]
            assert piece.squares().device.type == piece.sizes().device.type == "cuda"
            piece.add_to(torch.zeros(shape, device="cuda"), torch.ones(4, device="cuda"))
            with pytest.raises((RuntimeError, TypeError), match=r"device"):
                piece.add_to(torch.zeros(shape), torch.ones(4, device="cuda"))
    except RuntimeError as error:
        if "not linked with support for cuda" not in str(error):
            raise
        pytest.skip(str(error))


# Whole sums


def clipped(name: str, device: str, key: Key | None = None, **settings: Any) -> tuple[Tensor, str]:
    module, x, y = made(name)
    loss = settings.pop("loss", plain_loss)
    if settings.pop("broken", False):
        x = x.index_fill(0, torch.tensor([2]), float("inf"))
    module, x, y = module.to(device), x.to(device), y.to(device)
    layout = Layout.of(module)
    sums = ClippedSum(module, layout, loss, norm=0.3, **settings)
    return sums(layout.row(module), x, y, key), sums.way()


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "L1": {"order": 1},
    "by itself": {"micro_batch": 1},
    "two by two": {"micro_batch": 2},
    "as many as suit": {"micro_batch": 0},
    "known loss": {"loss": cross_entropy},
    "a record that is not finite": {"broken": True},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("name", MODULES)
def test_a_clipped_sum_elsewhere_is_that_of_the_cpu(name: str, settings: dict[str, Any]) -> None:
    if name == "words" and "broken" in settings:
        pytest.skip("words are finite")
    expected, way = clipped(name, "cpu", Key.from_seed(5), **settings)
    with pretend_device() as device:
        found, same = clipped(name, device, Key.from_seed(5), **settings)
    assert same == way and expected.any()
    torch.testing.assert_close(values(found), expected, rtol=1e-5, atol=1e-7)  # an LSTM's kernels are others there


def test_every_way_is_chosen_by_some_module() -> None:
    assert {clipped(name, "cpu", Key.from_seed(5))[1] for name in MODULES} == {
        "chained", "one_pass_channels_last", "one_pass", "vectorised", "one_by_one"
    }  # fmt: skip


def test_no_records_sum_to_zeros_where_the_parameters_are() -> None:
    module, x, y = made("mlp")
    with pretend_device() as device:
        module = module.to(device)
        found = ClippedSum(module, Layout.of(module), plain_loss, 1.0)(
            Layout.of(module).row(module), x[:0].to(device), y[:0].to(device)
        )
    assert not values(found).any()


def test_a_total_on_the_cpu_is_refused() -> None:
    """What was wrong: the total lay on the CPU, whatever was added to it."""
    module, x, y = made("mlp")
    layout = Layout.of(module)

    def added() -> None:
        with pretend_device() as device:
            far = module.to(device)
            pieces = one_pass(Problem.of(far, layout, plain_loss), layout.row(far), x.to(device), y.to(device))
            add_pieces(torch.zeros(layout.dimension), layout, pieces, torch.ones(7, device=device))

    with pytest.raises(MixedDevices):
        added()


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_coarse_products_are_refused(precision: str) -> None:
    """TF32 keeps 11 bits of a factor and bfloat16 8, and a clipped gradient has 2^-20 to spare."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with pytest.raises(BadValue, match=f"products is {precision}"):
            clipped("mlp", "cpu")
    finally:
        torch.set_float32_matmul_precision(before)


def test_records_that_mix_are_found_elsewhere_too() -> None:
    module, x, y = made("mlp")

    class Mixes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return module(x - x.mean(0))  # type: ignore[no-any-return]

    with pretend_device() as device:
        module = module.to(device)
        check_records_do_not_mix(module, plain_loss, x.to(device), y.to(device))
        with pytest.raises(UnsoundRound, match="mixes records"):
            check_records_do_not_mix(Mixes(), plain_loss, x.to(device), y.to(device))


# Mean gradients

FORWARDS: dict[str, Callable[[nn.Module], Stacked | OneByOne]] = {
    "stacked": Stacked,
    "vmapped": lambda module: Stacked(module, vmapped=True),
    "loop": OneByOne,
}


def mean_gradients(name: str, forward: str, counts: tuple[int, ...], device: str) -> list[Tensor]:
    module, x, y = made(name)
    clients, width = len(counts), max(counts)
    module = copy.deepcopy(module).to(device)
    x, y = x[: clients * width].to(device), y[: clients * width].to(device)
    batch = Batch(x, counts, DropoutMasks([Key.from_seed(client) for client in range(clients)]))
    rows = Layout.of(module).row(module).expand(clients, -1).clone()
    parameters = Layout.of(module).split(rows)
    found = MeanGradients.of(FORWARDS[forward](module), plain_loss, x, clients)(parameters, batch, y)
    return written_out(found)


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("name", ["mlp", "cnn", "sequence", "dropout", "own"])
def test_mean_gradients_elsewhere_are_those_of_the_cpu(name: str, forward: str) -> None:
    if (name, forward) == ("dropout", "vmapped"):
        pytest.skip("masks are drawn outside of vmap")
    for counts in ((3,), (2,)) if forward == "loop" else ((3, 3), (3, 2)):
        expected = mean_gradients(name, forward, counts, "cpu")
        with pretend_device() as device:
            found = mean_gradients(name, forward, counts, device)
        assert all(torch.equal(values(one), other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("records", [2, 40])
@pytest.mark.parametrize("clients", [1, 2])
def test_products_stay_where_they_are(clients: int, records: int) -> None:
    key = Key.from_seed(1)
    g, x, weight = (
        key.child(word).normal(clients, *shape).float()
        for word, shape in (("g", (records, 4)), ("x", (records, 5)), ("w", (4, 5)))
    )

    def all_of(g: Tensor, x: Tensor, weight: Tensor) -> list[Tensor]:
        product = Product(g, x)
        moved = weight.clone()
        product.descend(moved, 0.1, 0.9)
        return [product.squares(), product.added_to(weight, product.squares()), moved]

    expected = all_of(g, x, weight)
    with pretend_device() as device:
        found = all_of(g.to(device), x.to(device), weight.to(device))
    assert all(torch.equal(values(one), other) for one, other in zip(found, expected, strict=True))


def test_a_span_elsewhere_is_that_of_the_cpu() -> None:
    def spanned(device: str) -> Tensor:
        with Key.from_seed(0).child("span").seeding_torch():
            module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CLASSES))
            clients = [torch.randn(count, 64).to(device) for count in (9, 5)]
        module = module.to(device)
        layout = Layout.of(module)
        row = layout.row(module)
        starts = row.expand(2, -1)
        means = MeanGradients.of(Stacked(module), plain_loss, clients[0], 2)
        assert [means.span_width(x, 100) for x in clients] == [64, 64]
        inside, span = means.in_span(layout, row, starts, clients)
        parameters = {name: value.clone() for name, value in span.start.items()}
        places = torch.tensor([0, 1, 2, 9, 10, 11], device=device)
        batch = Batch(span.x.index_select(0, places), (3, 3), DropoutMasks([]))
        labels = torch.tensor([0, 1, 2, 2, 1, 0], device=device)
        for value, gradient in zip(parameters.values(), written_out(inside(parameters, batch, labels)), strict=True):
            value.sub_(gradient, alpha=0.1)
        rows = torch.zeros_like(starts)
        span.write(parameters, layout.split(rows))
        return rows

    expected = spanned("cpu")
    with pretend_device() as device:
        found = spanned(device)
    assert torch.equal(values(found), expected) and expected.any()
