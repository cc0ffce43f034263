"""The clipped sum against its definition: autograd on each record alone, then the clip."""

from __future__ import annotations

import copy
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.errors import BadValue, UnsoundRound
from sfumato.gradients import (
    ClippedSum,
    check_records_do_not_mix,
    choice,
    clipped_sum,
    layer_rules,
    per_record_passes,
    problem,
    record_gradients,
)
from sfumato.gradients.chain import Chain
from sfumato.gradients.clipped_sum import clip_factors
from sfumato.gradients.layer_rules import patches
from sfumato.gradients.per_record_passes import one_pass
from sfumato.gradients.problem import Problem
from sfumato.gradients.record_gradients import Outer, Rows, Scattered
from sfumato.gradients.recordwise import MixesRecords, RecordWise
from sfumato.key import Key
from sfumato.update import Layout


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The tensors are so small that threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def squared(outputs: Tensor, y: Tensor) -> Tensor:
    """A loss for outputs of any shape; the targets scale it, so that records differ."""
    return ((outputs - 0.3) ** 2).reshape(len(outputs), -1).sum(1) * (1 + y)


def loop(
    module: nn.Module, x: Tensor, y: Tensor, norm: float, loss: Callable[..., Tensor] = squared
) -> tuple[Tensor, Tensor]:
    """The definition, in float64 after the gradient."""
    names = Layout.of(module).names
    total, norms = torch.zeros(Layout.of(module).dimension, dtype=torch.float64), []
    for i in range(len(x)):
        module.zero_grad()
        loss(module(x[i : i + 1]), y[i : i + 1]).sum().backward()
        parameters = dict(module.named_parameters())
        flat = torch.cat(
            [
                torch.zeros_like(p).flatten() if p.grad is None else p.grad.to_dense().flatten()
                for p in map(parameters.get, names)
            ]
        )
        flat = flat.double()
        norms.append(flat.norm())
        total += flat * min(1.0, norm / max(norms[-1].item(), 1e-300))
    module.zero_grad()
    return total, torch.stack(norms)


class Scaled(nn.Module):
    """A parameter without dimensions, used by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.inner = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.inner(x) * self.scale)


class Tied(nn.Module):
    """One weight with two owners."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.second(self.first(x).tanh()))


class Twice(nn.Module):
    """One layer, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(self.layer(x).tanh()))


class ReadBack(nn.Module):
    """An embedding whose weight also makes the outputs, as in language models: no module but a function uses it again."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.words(x).mean(1), self.words.weight)


class PositionsFirst(nn.Module):
    """The layer sees [positions, records, features]: its first dimension is not the record."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x.transpose(0, 1)).tanh().transpose(0, 1))


class Sorted(nn.Module):
    """The layer sees the records in another order, as packed sequences do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        order = x[:, 0].argsort()
        return torch.as_tensor(self.layer(x[order]).tanh()[order.argsort()])


class Decides(nn.Module):
    """What it does depends on how many records there are."""

    def __init__(self, many: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.many, self.layer = many, nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x).relu() if self.many(x) else self.layer(x).tanh())


class Viewed(nn.Module):
    """`view` needs channels first."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 3, 3), nn.Linear(48, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.conv(x).relu().view(x.size(0), -1)))


class Recurrent(nn.Module):
    """The last state of a recurrent layer."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.layer(x)[0][:, -1]))


class Unused(nn.Module):
    """A layer that is never called and one whose output is dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.dropped, self.idle = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.dropped(x)
        return torch.as_tensor(self.used(x))


class Turned(nn.Module):
    """A layer that works on the transpose of its input, so that it sees all records."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(F.relu(x.T).T))


class Frozen(nn.Sequential):
    """A frozen body, and a layer of which only the bias is trained."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3))
        self[0].requires_grad_(False)
        self[2].weight.requires_grad_(False)


def _with_hook() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    module[0].register_forward_hook(lambda layer, inputs, output: 2 * output)
    return module


def conv(*layers: nn.Module, shape: tuple[int, ...]) -> tuple[Callable[[], nn.Module], Callable[[], Tensor]]:
    return lambda: nn.Sequential(*copy.deepcopy(layers)), lambda: torch.randn(5, *shape)


CHAIN, FAST, PLAIN, VMAP, LOOP = "chained", "one_pass_channels_last", "one_pass", "vectorised", "one_by_one"
ids = lambda *shape: lambda: torch.randint(0, 7, (5, *shape))  # noqa: E731
real = lambda *shape: lambda: torch.randn(5, *shape)  # noqa: E731
ZOO: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], str]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3, bias=False)), real(6), CHAIN),
    "sequence, short": (lambda: nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 30)), real(3, 30), CHAIN),
    "sequence, long": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)),
        real(60, 3),
        CHAIN,
    ),
    "sequence, two dimensions": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh()), real(2, 5, 3), CHAIN),
    "conv1d": (*conv(nn.Conv1d(3, 4, 3, stride=2, padding=1, dilation=2), nn.ReLU(), shape=(3, 11)), FAST),
    "conv2d": (*conv(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 3, (3, 2)), shape=(2, 8, 7)), CHAIN),
    "conv2d strided": (
        *conv(nn.Conv2d(2, 4, (3, 2), stride=(2, 3), padding=(2, 1), dilation=(2, 1)), shape=(2, 9, 10)),
        CHAIN,
    ),
    "conv2d groups": (
        *conv(nn.Conv2d(4, 6, 3, groups=2, padding="same", bias=False), nn.Tanh(), shape=(4, 5, 5)),
        FAST,
    ),
    "conv2d depthwise": (*conv(nn.Conv2d(4, 8, 3, groups=4), nn.Conv2d(8, 3, 1), nn.Tanh(), shape=(4, 5, 5)), CHAIN),
    "conv2d circular": (
        *conv(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.Tanh(), shape=(2, 5, 5)),
        FAST,
    ),
    "conv2d unformed": (*conv(nn.Conv2d(16, 32, 3), nn.Tanh(), shape=(16, 4, 4)), CHAIN),
    "conv2d unformed groups": (*conv(nn.Conv2d(32, 32, 3, groups=2, stride=2), nn.Tanh(), shape=(32, 6, 6)), CHAIN),
    "conv3d": (*conv(nn.Conv3d(2, 4, 2, stride=(1, 2, 1), padding=1, groups=2), nn.Tanh(), shape=(2, 3, 5, 4)), FAST),
    "embedding": (lambda: nn.Sequential(nn.Embedding(7, 4), nn.Tanh(), nn.Linear(4, 2)), ids(9), FAST),
    "embedding padded": (
        lambda: nn.Sequential(nn.Embedding(7, 4, padding_idx=2, sparse=True), nn.Tanh()),
        ids(9),
        FAST,
    ),
    "embedding single": (lambda: nn.Sequential(nn.Embedding(7, 4), nn.Tanh()), ids(), FAST),
    "layer norm": (lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Tanh()), real(6), FAST),
    "layer norm, sequence": (
        lambda: nn.Sequential(nn.LayerNorm((3, 6)), nn.Tanh(), nn.LayerNorm(6)),
        real(4, 3, 6),
        FAST,
    ),
    "rms norm": (lambda: nn.Sequential(nn.Linear(6, 6), nn.RMSNorm(6), nn.Tanh()), real(4, 6), FAST),
    "group norm": (*conv(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), shape=(2, 6, 6)), FAST),
    "instance norm": (*conv(nn.Conv1d(2, 4, 3), nn.InstanceNorm1d(4, affine=True), nn.Tanh(), shape=(2, 8)), FAST),
    "instance norm 2": (*conv(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.Tanh(), shape=(2, 8, 6)), FAST),
    "frozen": (Frozen, real(6), FAST),
    "unused": (Unused, real(6), FAST),
    "view": (Viewed, real(2, 6, 6), PLAIN),
    "decides by len": (lambda: Decides(lambda x: len(x) > 1), real(6), VMAP),
    "decides by shape": (lambda: Decides(lambda x: x.shape[0] > 1), real(6), VMAP),
    "decides by size": (lambda: Decides(lambda x: bool(x.size(0) // 2)), real(6), VMAP),
    "decides by numel": (lambda: Decides(lambda x: x.numel() > 6), real(6), VMAP),
    "no dimension": (Scaled, real(6), VMAP),
    "tied": (Tied, real(6), VMAP),
    "called twice": (Twice, real(6), VMAP),
    "read by a function": (ReadBack, ids(9), VMAP),
    "positions first": (PositionsFirst, real(7, 3), VMAP),
    "as many positions as records": (PositionsFirst, real(4, 3), VMAP),
    "records in another order": (Sorted, real(6), VMAP),
    "a hook": (_with_hook, real(6), VMAP),
    "turned around": (Turned, real(6), VMAP),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), real(6), VMAP),
    "batch norm, fixed": (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Tanh()).eval(), real(6), VMAP),
    "transformer": (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), real(3, 4), VMAP),
    "lstm": (lambda: Recurrent(nn.LSTM), real(4, 3), LOOP),
    "gru": (lambda: Recurrent(nn.GRU), real(4, 3), LOOP),
    "transposed conv": (*conv(nn.ConvTranspose2d(2, 3, 3), nn.Tanh(), shape=(2, 4, 4)), VMAP),
    "float64": (lambda: nn.Linear(6, 4).double(), lambda: torch.randn(5, 6).double(), VMAP),
}


def example(name: str) -> tuple[nn.Module, Tensor, Tensor, str]:
    build, draw, way = ZOO[name]
    with torch.random.fork_rng():
        torch.set_rng_state(Key.from_seed(len(name)).generator().get_state())
        return build(), draw(), torch.rand(5), way


class Called(nn.Module):
    """The same function, which nobody can see to be a chain."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.inner(x))


def sum_and_norms(clipped: ClippedSum, row: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The clipped sum, and what each record's norm was found to be before the clip."""
    seen: list[Tensor] = []

    def record_norms(pieces: Any, x: Tensor) -> Tensor:
        seen.append(record_gradients.record_norms(pieces, x))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clipped_sum, "record_norms", record_norms)
        total = clipped(row, x, y)
    return total, torch.cat(seen)[: len(x)]


def check(name: str, micro_batch: int = 64, hidden: bool = False) -> str:
    """The law: sum and norms as in the loop, at a norm that clips some records and not others."""
    module, x, y, _ = example(name)
    module = Called(module) if hidden else module
    before = copy.deepcopy(module.state_dict())
    _, norms = loop(module, x, y, 1.0)
    norm = norms.median().item() * 1.001
    expected, _ = loop(module, x, y, norm)
    layout = Layout.of(module)
    clipped = ClippedSum(module, layout, squared, norm, micro_batch)
    found, found_norms = sum_and_norms(clipped, layout.row(module), x, y)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found_norms, norms.double(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5 * norm)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    return clipped.way()


@pytest.mark.parametrize("name", ZOO)
def test_the_sum_is_that_of_single_records(name: str) -> None:
    assert check(name) == ZOO[name][2]


@pytest.mark.parametrize("name", [name for name in ZOO if ZOO[name][2] == CHAIN])
def test_a_chain_that_is_not_seen_as_one_takes_the_way_of_rules(name: str) -> None:
    assert check(name, hidden=True) == FAST


@pytest.mark.parametrize("name", ["mlp", "conv2d unformed", "embedding", "tied", "lstm"])
@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_micro_batches_change_nothing(name: str, micro_batch: int) -> None:
    check(name, micro_batch)


def test_the_zoo_takes_both_forms_of_a_product() -> None:
    seen = set()
    for name in ("sequence, short", "sequence, long", "conv2d", "conv2d unformed", "conv2d unformed groups"):
        module, x, y, _ = example(name)
        layout = Layout.of(module)
        pieces = one_pass(Problem.of(module, layout, squared), layout.row(module), x, y)
        seen |= {(type(piece), name.split()[0].strip(",")) for key, piece in pieces.items() if key.endswith("weight")}
    assert seen == {(kind, name) for kind in (Rows, Outer) for name in ("sequence", "conv2d")}


SABOTAGE: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {}


def sabotage(name: str) -> Callable[[Callable[[pytest.MonkeyPatch], None]], None]:
    return lambda function: SABOTAGE.update({function.__name__: (name, function)})


@sabotage("conv2d")
def no_bias(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rows, "add_to", lambda self, total, factors: None)


@sabotage("sequence, short")
def norm_of_a_sequence_as_of_one_position(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Outer,
        "squares",
        lambda self: self.inputs.double().square().sum((1, 2, 3)) * self.outputs.double().square().sum((1, 2, 3)),
    )


@sabotage("conv2d strided")
def dilation_forgotten(patch: pytest.MonkeyPatch) -> None:
    def wrong(layer: Any, image: Tensor) -> Tensor:
        other = copy.copy(layer)
        other.dilation = (1, 1)
        return patches(other, image)[:, :, : patches(layer, image).shape[2]]

    patch.setattr(layer_rules, "patches", wrong)


@sabotage("embedding")
def norm_of_no_record_in_particular(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Scattered) -> Tensor:
        return self.gradients.double().square().sum().repeat(self.records) / self.records

    patch.setattr(Scattered, "squares", wrong)


@sabotage("mlp")
def clip_of_each_parameter_alone(patch: pytest.MonkeyPatch) -> None:
    def wrong(total: Tensor, layout: Layout, pieces: Any, factors: Tensor) -> None:
        for name, view in layout.split(total).items():
            pieces[name].add_to(view, clip_factors(pieces[name].squares().sqrt(), 1.0).float())

    patch.setattr(clipped_sum, "add_pieces", wrong)


@sabotage("called twice")
def second_call_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(per_record_passes.Tape, "covered", lambda self: True)


@sabotage("records in another order")
def order_of_the_records_unseen(patch: pytest.MonkeyPatch) -> None:
    """Only the comparison with single records, which every sabotage switches off, can tell."""


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_broken_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo, breaks = SABOTAGE[name]
    monkeypatch.setattr(choice, "_agrees", lambda *arguments: True)  # the choice would see it and avoid the rule
    monkeypatch.setattr(problem, "RecordWise", nullcontext)  # and so would the list of functions
    breaks(monkeypatch)
    with pytest.raises(AssertionError):
        check(zoo)


@pytest.mark.parametrize("name", ["dilation_forgotten", "norm_of_a_sequence_as_of_one_position", "second_call_unseen"])
def test_a_broken_rule_is_not_chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo, breaks = SABOTAGE[name]
    breaks(monkeypatch)
    assert check(zoo) == VMAP


@pytest.mark.parametrize(
    "name", ["mlp", "sequence, short", "sequence, long", "conv2d unformed", "group norm", "tied", "lstm"]
)
def test_one_record_never_passes_the_norm(name: str) -> None:
    module, x, y, _ = example(name)
    layout = Layout.of(module)
    clipped = ClippedSum(module, layout, squared, 0.1)
    row = layout.row(module)
    clipped(row, x, y)
    for scale in (0.0, 1e-30, 1e-3, 1.0, 1e3, 1e12, 1e19, 1e30, 1e38, math.inf, math.nan):
        for record in range(2):
            total = clipped(row, x[record : record + 1] * scale, y[record : record + 1])
            assert total.isfinite().all()
            assert total.double().norm() <= 0.1


def test_positions_that_cancel_stay_within_the_norm() -> None:
    module = nn.Linear(40, 40, bias=False)
    layout = Layout.of(module)
    clipped = ClippedSum(module, layout, lambda out, y: (out * torch.tensor([[1.0], [-1.0]])).sum((1, 2)) * y, 1.0)
    x = torch.randn(3, 1, 40, generator=Key.from_seed(0).generator()).repeat(1, 2, 1)
    x[:, 1] += 1e-6
    row = layout.row(module)
    total, norms = sum_and_norms(clipped, row, x * 1e4, torch.ones(3) * 1e4)
    for i in range(3):
        assert clipped(row, x[i : i + 1] * 1e4, torch.full((1,), 1e4)).double().norm() <= 1.0
    assert total.isfinite().all() and norms.isfinite().all()


@pytest.mark.parametrize("bad", [math.inf, math.nan, 3e38])
@pytest.mark.parametrize("name", ["mlp", "conv2d", "tied", "lstm"])
def test_a_gradient_that_is_not_finite_adds_zero(name: str, bad: float) -> None:
    module, x, y, _ = example(name)
    layout = Layout.of(module)
    row = layout.row(module)
    clipped = ClippedSum(module, layout, squared, 0.1)
    clipped(row, x, y)
    broken, targets = x.clone(), y.clone()
    broken[2], targets[2] = bad, bad
    total, norms = sum_and_norms(clipped, row, broken, targets)
    kept = torch.tensor([0, 1, 3, 4])
    torch.testing.assert_close(total, clipped(row, x[kept], y[kept]), rtol=1e-5, atol=1e-7)
    assert (norms[kept] < 1e6).all() and not norms[2] <= 3.5e38
    assert torch.equal(
        ClippedSum(module, layout, squared, 0.1)(row, broken * math.nan, y), torch.zeros(layout.dimension)
    )


def test_a_gradient_of_zero_stays_zero() -> None:
    module = nn.Linear(3, 2)
    clipped = ClippedSum(module, Layout.of(module), lambda out, y: out.sum(1) * y, 1.0)
    assert not clipped(torch.ones(8), torch.ones(4, 3), torch.zeros(4)).any()


def test_no_records_give_zeros() -> None:
    for name in ("mlp", "embedding", "lstm"):
        module, x, y, _ = example(name)
        layout = Layout.of(module)
        total = ClippedSum(module, layout, squared, 1.0)(layout.row(module), x[:0], y[:0])
        assert torch.equal(total, torch.zeros(layout.dimension))


@pytest.mark.parametrize("bad", [(5, 9), (0, 9), (5, 6, 9)], ids=str)
@pytest.mark.parametrize("micro_batch", [1, 4, 64])
def test_a_record_that_raises_adds_zero_and_changes_no_other(bad: tuple[int, ...], micro_batch: int) -> None:
    """An embedding has no word 99. Also where the record is among those by which the way is chosen."""
    module = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, 2))
    x, layout = torch.arange(40).reshape(10, 4) % 7, Layout.of(module)
    broken, y = x.clone(), torch.arange(10) / 10
    broken[list(bad), 1] = 99
    row, good = layout.row(module), [record for record in range(10) if record not in bad]
    noted: list[int] = []
    found = ClippedSum(module, layout, squared, 0.1, micro_batch)(
        row, broken, y, fault=lambda record, error: noted.append(record)
    )
    torch.testing.assert_close(found, ClippedSum(module, layout, squared, 0.1)(row, x[good], y[good]))
    assert noted == list(bad)
    with pytest.raises(IndexError):
        ClippedSum(module, layout, squared, 0.1, micro_batch)(row, broken, y)


def test_no_record_is_blamed_for_a_machine_without_memory() -> None:
    def loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes")

    module = nn.Linear(3, 2)
    with pytest.raises(RuntimeError):
        ClippedSum(module, Layout.of(module), loss, 0.1)(
            Layout.of(module).row(module), torch.ones(5, 3), torch.ones(5), fault=lambda *told: None
        )


@pytest.mark.parametrize("hidden", [False, True])
def test_a_large_batch_is_worked_in_parts(hidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    linear, forward = F.linear, Chain.forward
    monkeypatch.setattr(F, "linear", lambda x, *rest: (seen.append(len(range(x.shape[0]))), linear(x, *rest))[1])
    monkeypatch.setattr(Chain, "forward", lambda self, row, x: (seen.append(len(x)), forward(self, row, x))[1])
    module = Called(nn.Linear(3, 2)) if hidden else nn.Linear(3, 2)
    clipped = ClippedSum(module, Layout.of(module), squared, 1.0, micro_batch=16)
    clipped(torch.ones(8), torch.randn(100, 3), torch.ones(100))
    assert max(seen) == 16 and sum(size for size in seen if size == 16) == 96


def test_words_too_few_to_choose_by() -> None:
    module, x, y, _ = example("embedding")
    layout = Layout.of(module)
    clipped = ClippedSum(module, layout, squared, 1.0)
    small = clipped(layout.row(module), x[:2], y[:2])
    assert clipped.way() == "undecided"
    torch.testing.assert_close(small.double(), loop(module, x[:2], y[:2], 1.0)[0], rtol=1e-5, atol=1e-6)
    clipped(layout.row(module), x, y)
    assert clipped.way() == FAST


def test_one_record_is_enough_to_choose_by() -> None:
    module, x, y, _ = example("mlp")
    layout = Layout.of(module)
    one, other = (ClippedSum(module, layout, squared, 1.0) for _ in range(2))
    one(layout.row(module), x[:1], y[:1])
    assert one.way() == CHAIN
    other(layout.row(module), x, y)
    assert torch.equal(one(layout.row(module), x, y), other(layout.row(module), x, y))  # whatever came before


@pytest.mark.parametrize("norm", [1.0, 0.1, 1e-3, 1e-6, 1e-7])
def test_factors_near_zero_keep_the_norm(norm: float) -> None:
    module = nn.Linear(1, 1, bias=False)
    layout = Layout.of(module)
    clipped = ClippedSum(module, layout, lambda out, y: out[:, 0] * y, norm)
    row = layout.row(module)
    for exponent in torch.linspace(20.0, 38.5, 200).tolist():
        assert clipped(row, torch.ones(1, 1), torch.tensor([10.0**exponent])).abs().item() <= norm


def test_a_huge_input_and_a_tiny_gradient_keep_the_norm() -> None:
    module = nn.Linear(64, 64, bias=False)
    layout = Layout.of(module)
    for norm in torch.logspace(-6.0, -2.0, 100).tolist():
        clipped = ClippedSum(module, layout, lambda out, y: out.sum(1) * y, norm)
        total = clipped(layout.row(module), torch.full((1, 64), 3e38), torch.tensor([1e-39]))
        assert total.double().norm() <= norm


def test_a_norm_over_the_records_is_no_norm_of_a_record() -> None:
    x = torch.ones(4, 6)
    with RecordWise():
        F.layer_norm(x, (6,))
        with pytest.raises(MixesRecords):
            F.layer_norm(x, (4, 6))


class Depends(nn.Module):
    """Calls its layer twice for some batches: known only when it happens."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        once = self.layer(x)
        return torch.as_tensor(self.layer(once) if bool(x[0, 0] > 100) else once)


def test_a_use_that_no_rule_covers_is_seen_at_every_call() -> None:
    module = Depends()
    layout = Layout.of(module)
    clipped = ClippedSum(module, layout, squared, 1.0)
    clipped(layout.row(module), torch.randn(5, 6), torch.ones(5))
    assert clipped.way() == LOOP  # it looks at one record to decide about all
    x = torch.randn(5, 6)
    x[:, 0] = 101.0
    torch.testing.assert_close(
        clipped(layout.row(module), x, torch.ones(5)).double(),
        loop(module, x, torch.ones(5), 1.0)[0],
        rtol=1e-4,
        atol=1e-6,
    )


def test_the_row_counts_and_not_the_module() -> None:
    module, x, y, _ = example("conv2d")
    layout = Layout.of(module)
    clipped = ClippedSum(module, layout, squared, 1.0)
    other = copy.deepcopy(module)
    row = layout.row(module) * 0.5
    layout.write(row, other)
    kept = row.clone()
    torch.testing.assert_close(clipped(row, x, y).double(), loop(other, x, y, 1.0)[0], rtol=1e-4, atol=1e-6)
    assert torch.equal(row, kept) and not any(layer._forward_hooks for layer in clipped.module.modules())


def test_threads_share_one_object() -> None:
    module, x, y, _ = example("conv2d")
    layout = Layout.of(module)
    clipped = ClippedSum(module, layout, squared, 1.0)
    rows = [layout.row(module) * scale for scale in (0.5, 0.8, 1.0, 1.3)]
    expected = [clipped(row, x, y) for row in rows]
    wrong: list[int] = []

    def work(which: int) -> None:
        for _ in range(20):
            if not torch.allclose(clipped(rows[which], x, y), expected[which], rtol=1e-4, atol=1e-6):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_dropout_comes_from_the_key() -> None:
    module = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5), nn.Linear(50, 2))
    layout = Layout.of(module)
    clipped = ClippedSum(module, layout, squared, 1.0)
    x, y, row = torch.randn(5, 6), torch.ones(5), layout.row(module)
    with pytest.raises(BadValue, match="no key"):
        clipped(row, x, y)
    one, again, other = (clipped(row, x, y, Key.from_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert clipped.way() == FAST
    fixed = copy.deepcopy(module).eval()
    assert not torch.allclose(one.double(), loop(fixed, x, y, 1.0)[0])
    both = nn.Sequential(Scaled(), nn.Dropout(0.5))
    layout = Layout.of(both)
    clipped = ClippedSum(both, layout, squared, 1.0)
    one, again = (clipped(layout.row(both), x, y, Key.from_seed(0)) for _ in range(2))
    assert torch.equal(one, again) and clipped.way() == VMAP


class Centred(nn.Module):
    """Takes the mean of the batch away: no type tells."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x - 1e-3 * x.mean(0)))


class Heavy(Centred):
    """So much that the one pass disagrees with single records."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x - 0.5 * x.mean(0)))


@pytest.mark.parametrize("name", ZOO)
def test_modules_that_keep_records_apart_pass(name: str) -> None:
    module, x, y, _ = example(name)
    check_records_do_not_mix(module, squared, x, y)


def test_modules_that_mix_records_are_refused() -> None:
    x, y = torch.randn(5, 6), torch.ones(5)
    norm = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    for refused in (
        lambda: check_records_do_not_mix(norm, squared, x, y),
        lambda: ClippedSum(norm, Layout.of(norm), squared, 1.0),
    ):
        with pytest.raises(UnsoundRound, match="BatchNorm1d") as caught:
            refused()
        assert "GroupNorm" in caught.value.fix
    with pytest.raises(UnsoundRound, match="Centred or its loss mixes"):
        check_records_do_not_mix(Centred(), squared, x, y)
    with pytest.raises(UnsoundRound, match="mixes records"):
        check_records_do_not_mix(nn.Linear(6, 4), lambda out, y: squared(out, y) - squared(out, y).mean(), x, y)
    without = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval()
    with pytest.raises(UnsoundRound):
        check_records_do_not_mix(without, squared, x, y)
    check_records_do_not_mix(nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5)), squared, x, y)


def test_mixing_that_was_not_checked_is_still_clipped_by_record() -> None:
    heavy, x, y = Heavy(), torch.randn(5, 6), torch.ones(5)
    layout = Layout.of(heavy)
    clipped = ClippedSum(heavy, layout, squared, 1.0)
    torch.testing.assert_close(
        clipped(layout.row(heavy), x, y).double(), loop(heavy, x, y, 1.0)[0], rtol=1e-4, atol=1e-6
    )


def test_bad_values_are_refused() -> None:
    module = nn.Linear(6, 4)
    layout = Layout.of(module)
    good = ClippedSum(module, layout, squared, 1.0)
    row, x, y = layout.row(module), torch.randn(5, 6), torch.ones(5)
    for wrong, word in (({"norm": 0.0}, "norm"), ({"norm": math.nan}, "norm"), ({"micro_batch": -1}, "micro_batch")):
        with pytest.raises(BadValue, match=word):
            ClippedSum(module, layout, squared, **{"norm": 1.0, **wrong})  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="layout"):
        ClippedSum(nn.Linear(6, 5), layout, squared, 1.0)
    shared = nn.Linear(6, 4)
    shared.forward = lambda x: F.linear(x, shared.weight)  # type: ignore[method-assign]
    with pytest.raises(BadValue, match="forward of its own"):
        ClippedSum(shared, layout, squared, 1.0)
    with pytest.raises(BadValue, match="row"):
        good(row[:-1], x, y)
    with pytest.raises(BadValue, match="5 records with 4 targets"):
        good(row, x, y[:4])
    for loss in (lambda out, y: squared(out, y).mean(), lambda out, y: out):
        with pytest.raises(BadValue, match="one number per record"):
            ClippedSum(module, layout, loss, 1.0)(row, x, y)
        with pytest.raises(BadValue, match="one number per record"):
            check_records_do_not_mix(module, loss, x, y)
    with pytest.raises(BadValue, match="at least two"):
        check_records_do_not_mix(module, squared, x[:1], y[:1])

    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(F.linear(x + torch.randn_like(x), self.weight))

    with pytest.raises(BadValue, match="randn_like"):
        ClippedSum(Noisy(6, 4), layout, squared, 1.0)(row, x, y)


def test_nothing_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("lstm", "tied", "conv2d", "transformer"):
            check(name)
