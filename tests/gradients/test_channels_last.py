"""A convolution that the library gets wrong with channels last is computed with channels first, everywhere.

The expected values come from torch in float64 and channels first: there the library has no such convolution.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato import Key, Sgd
from sfumato.engine.plan import Plan
from sfumato.gradients import Batch, DropoutMasks, OneByOne, per_record_passes
from sfumato.gradients.chain import Chain
from sfumato.gradients.channels_last import convolution, misread, reads_its_image
from sfumato.gradients.problem import NoRule, Problem
from sfumato.gradients.recordwise import MixesRecords, RecordWise
from sfumato.measures import cross_entropy
from sfumato.update import Layout
from tests.gradients.test_chain import seeded, trained

# kernel, stride, height and width of an image with one place in a line
WRONG = [((1, 2), (1, 3), (11, 4)), ((5, 8), (1, 8), (20, 9)), ((5, 3), (1, 2), (20, 4)), ((3, 3), (1, 5), (13, 5))]


class Called(nn.Module):
    """Not a chain: a function of its own."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def modules(kernel: tuple[int, int], stride: tuple[int, int], shape: tuple[int, int]) -> list[nn.Module]:
    """The convolution first, or after one that has one channel, as a chain and as something else."""
    first = nn.Conv2d(1, 4, kernel, stride)
    places = first(torch.zeros(1, 1, *shape)).numel()
    second = nn.Conv2d(1, 2, 1), nn.Conv2d(2, 1, 1), nn.Conv2d(1, 4, kernel, stride)
    end = nn.Flatten(), nn.Linear(places, 3)
    return [kind(*layers, *end) for kind in (nn.Sequential, Called) for layers in ((first,), second)]


@pytest.mark.parametrize(("kernel", "stride", "shape"), WRONG)
@pytest.mark.parametrize("which", range(4))
def test_local_training_is_right(
    which: int, kernel: tuple[int, int], stride: tuple[int, int], shape: tuple[int, int]
) -> None:
    module = seeded(lambda: modules(kernel, stride, shape)[which])
    assert (Chain.of(module) is None) == (which > 1)
    found = trained(module, Sgd(lr=0.5, steps=1, batch_size=6), Plan(), (6,), (1, *shape))
    torch.testing.assert_close(found[0].double(), one_step(module, (1, *shape), 6), rtol=1e-4, atol=1e-6)


def one_step(module: nn.Module, shape: tuple[int, ...], records: int) -> torch.Tensor:
    """What a step of 0.5 over all records of the first client adds, by torch in float64."""
    exact = copy.deepcopy(module).double()
    x, y = Key.from_seed(0).normal(records, *shape).float().double(), torch.arange(records) % 3
    F.cross_entropy(exact(x), y).backward()
    return torch.cat([-0.5 * p.grad.flatten() for p in exact.parameters() if p.grad is not None])


@pytest.mark.parametrize(("kernel", "stride", "shape"), WRONG)
@pytest.mark.parametrize("way", ["chained", "one_pass", "one_pass_channels_last"])
@pytest.mark.parametrize("which", range(4))
def test_gradients_of_records_are_right_or_refused(
    which: int, way: str, kernel: tuple[int, int], stride: tuple[int, int], shape: tuple[int, int]
) -> None:
    module = seeded(lambda: modules(kernel, stride, shape)[which])
    layout = Layout.of(module)
    x, y = Key.from_seed(0).normal(6, 1, *shape).float(), torch.arange(6) % 3
    problem = Problem.of(copy.deepcopy(module), layout, cross_entropy)
    refused = way == "one_pass_channels_last" or (way == "chained" and which > 1)
    if refused:
        with pytest.raises(NoRule):
            getattr(per_record_passes, way)(problem, layout.row(module), x, y)
        return
    pieces = getattr(per_record_passes, way)(problem, layout.row(module), x, y)
    exact = copy.deepcopy(module).double()
    for record in range(6):
        exact.zero_grad()
        F.cross_entropy(exact(x[record : record + 1].double()), y[record : record + 1]).backward()
        squares = {name: float(p.grad.square().sum()) for name, p in exact.named_parameters() if p.grad is not None}
        for name, piece in pieces.items():
            assert float(piece.squares()[record]) == pytest.approx(squares[name], rel=1e-4, abs=1e-9)


def test_which_convolutions_are_wrong() -> None:
    one, two = torch.zeros(4, 1, 3, 3), torch.zeros(4, 2, 3, 3)
    assert misread(one, (1, 2), 1, 1) and misread(one.unsqueeze(2), (2, 1, 3), 1, 1)
    assert not any(misread(one, stride, 1, 1) for stride in (1, 2, (2, 1), (2, 2), (1, 1)))
    assert not misread(two, (1, 2), 1, 1) and not misread(one, (1, 2), 1, 4) and not misread(one[:, :, 0], (2,), 1, 1)
    assert misread(two, 2, 2, 1) and misread(one, (1, 2), (1, 2), 4)
    assert not misread(two, 1, 2, 1) and not misread(two, (2, 1), 2, 1) and not misread(two, 2, (2, 1), 1)


def test_a_convolution_that_crashed_is_right() -> None:
    layer = nn.Conv2d(3, 4, (1, 2), stride=(1, 2), padding=(0, 3), dilation=(1, 2))
    module = seeded(lambda: nn.Sequential(layer, nn.Flatten(), nn.Linear(108, 3)))
    found = trained(module, Sgd(lr=0.5, steps=1, batch_size=5), Plan(), (5,), (3, 9, 1))
    torch.testing.assert_close(found[0].double(), one_step(module, (3, 9, 1), 5), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("last", ["image", "weight"])
def test_a_call_with_channels_last_mixes_records(last: str) -> None:
    x, w = torch.ones(2, 1, 11, 4), torch.ones(4, 1, 1, 2)
    if last == "image":
        x = x.clone(memory_format=torch.channels_last)
    else:
        w = w.clone(memory_format=torch.channels_last)
    with RecordWise(), pytest.raises(MixesRecords):
        F.conv2d(x, w, stride=(1, 3))
    assert not reads_its_image(x, w, None, (1, 3)) and reads_its_image(x, w, None, (1, 1))
    first = torch.ones(2, 1, 11, 4), torch.ones(4, 1, 1, 2)
    with RecordWise():
        F.conv2d(*first, stride=(1, 3))
    assert torch.equal(convolution(F.conv2d, x, weight=w, stride=(1, 3)), torch.full((2, 4, 11, 1), 2.0))


@pytest.mark.parametrize(("kernel", "stride", "shape"), WRONG)
@pytest.mark.parametrize("which", range(4))
def test_records_that_come_with_channels_last_are_read_right(
    which: int, kernel: tuple[int, int], stride: tuple[int, int], shape: tuple[int, int]
) -> None:
    module = seeded(lambda: modules(kernel, stride, shape)[which])
    x = Key.from_seed(0).normal(6, 1, *shape).float().clone(memory_format=torch.channels_last)
    parameters = {name: p.detach()[None] for name, p in module.named_parameters()}
    found = OneByOne(module)(parameters, Batch(x, (6,), DropoutMasks([])))
    expected = copy.deepcopy(module).double()(x.double().contiguous(memory_format=torch.contiguous_format))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)
