"""Records clipped in L1 without writing their gradients out, against gradients that are."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from sfumato import Key
from sfumato.gradients import ClippedSum, clipped_sum, record_gradients
from sfumato.update import Layout


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.mixed = nn.Embedding(7, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.mixed(self.embedding(x)).mean(1)


class Scaled(nn.Module):
    """A parameter of its own, for which no layer has a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(6, 3), nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


def loss(outputs: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, y, reduction="none")


@dataclass(frozen=True)
class Case:
    module: nn.Module
    shape: tuple[int, ...]

    def records(self) -> tuple[Tensor, Tensor]:
        key = Key.from_seed(4)
        x = key.child("x").normal(9, *self.shape)
        whole = isinstance(self.module, Words)
        return ((x.abs() * 3).long().clamp(max=6) if whole else x.float()), torch.arange(9) % 3


CASES = {
    "linear": Case(nn.Linear(6, 3), (6,)),
    "two layers": Case(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3, bias=False)), (6,)),
    "convolution": Case(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)), (1, 8, 8)
    ),
    "one position": Case(nn.Sequential(nn.Conv2d(2, 40, 5), nn.Flatten(), nn.Linear(160, 3)), (2, 6, 6)),
    "words": Case(Words(), (4,)),
    "no rule": Case(Scaled(), (6,)),
}  # fmt: skip


def written_out(case: Case, layout: Layout, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
    parameters = {name: part[0].clone().requires_grad_() for name, part in layout.split(row[None]).items()}
    value = loss(functional_call(case.module, parameters, (x,)), y).sum()
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(parameters.values()))]).double()


def check(case: Case, norm: float = 0.05) -> None:
    layout = Layout.of(case.module)
    row = Key.from_seed(1).normal(layout.dimension).float() * 0.3
    x, y = case.records()
    gradients = [written_out(case, layout, row, x[i : i + 1], y[i : i + 1]) for i in range(len(x))]
    sizes = torch.stack([one.abs().sum() for one in gradients])
    for some in (norm, float(sizes.median())):
        expected = torch.stack([g * min(1.0, some / float(n)) for g, n in zip(gradients, sizes, strict=True)]).sum(0)
        found = ClippedSum(case.module, layout, loss, some, order=1)(row, x, y).double()
        assert torch.allclose(found, expected, rtol=2e-5, atol=2e-6 * some)
        for i in range(len(x)):
            alone = ClippedSum(case.module, layout, loss, some, order=1)(row, x[i : i + 1], y[i : i + 1]).double()
            assert float(alone.abs().sum()) <= some


@pytest.mark.parametrize("name", CASES)
def test_the_sum_is_that_of_written_out_gradients_clipped_in_l1(name: str) -> None:
    check(CASES[name])


def test_a_linear_layer_is_a_product_of_two_norms() -> None:
    x, g = Key.from_seed(1).normal(5, 7).float(), Key.from_seed(2).normal(5, 3).float()
    sizes = record_gradients.Dyads(x, g).sizes()
    formed = torch.einsum("ni,nj->nij", g.double(), x.double())
    assert sizes == pytest.approx(formed.abs().sum((1, 2)), rel=1e-12)
    assert sizes == pytest.approx(x.double().abs().sum(1) * g.double().abs().sum(1), rel=1e-12)


@pytest.mark.parametrize("name", ["linear", "convolution"])
def test_an_l2_norm_in_its_place_would_be_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipped_sum, "record_sizes", record_gradients.record_norms)
    with pytest.raises(AssertionError):
        check(CASES[name])


def test_positions_one_by_one_are_not_the_norm_of_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum over positions of |a||g| bounds the norm, and is far from it: gradients would be clipped too short."""

    def product(self: record_gradients.Outer) -> Tensor:
        lengths, heights = (part.double().abs().sum(3) for part in (self.inputs, self.outputs))
        return (lengths * heights).sum((1, 2))

    monkeypatch.setattr(record_gradients.Outer, "sizes", product)
    with pytest.raises(AssertionError):
        check(CASES["one position"])
