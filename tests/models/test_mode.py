"""Frozen parts: in evaluation wherever a model trains, and so a frozen BatchNorm is a public map."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from sfumato.errors import UnsoundRound
from sfumato.gradients import ClippedSum
from sfumato.measures import cross_entropy
from sfumato.models import check_module, training_mode
from sfumato.update import Layout
from tests.models.frozen import IMAGES, pretrained


def norm(layer: nn.Module) -> nn.Module:
    """Something trained around it, so that the whole is not frozen."""
    return nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 2))


class PartlyFrozen(nn.BatchNorm1d):
    def __init__(self) -> None:
        super().__init__(4)
        self.weight.requires_grad_(False)


class TrainsItsNorm(nn.Module):
    """Takes a frozen norm out of evaluation, where nobody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(4).requires_grad_(False), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.head(self.norm.train()(x)))


class StaysInTraining(nn.BatchNorm1d):
    """Does not let itself be put into evaluation."""

    def train(self, mode: bool = True) -> StaysInTraining:
        super().train(True)
        return self


ROWS = torch.linspace(-1, 1, 12).reshape(3, 4)
ACCEPTED: dict[str, Callable[[], nn.Module]] = {
    "frozen": lambda: norm(nn.BatchNorm1d(4).requires_grad_(False)),
    "in a frozen part": lambda: norm(
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)).requires_grad_(False)
    ),
    "frozen instance norm": lambda: norm(
        nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten())
        .requires_grad_(False)
    ),
}  # fmt: skip
REFUSED: dict[str, Callable[[], nn.Module]] = {
    "trained": lambda: norm(nn.BatchNorm1d(4)),
    "partly frozen": lambda: norm(PartlyFrozen()),
    "nothing to freeze": lambda: norm(nn.BatchNorm1d(4, affine=False)),
    "trained by the forward pass": TrainsItsNorm,
    "stays in training": lambda: norm(StaysInTraining(4).requires_grad_(False)),
}


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("name", ACCEPTED)
def test_statistics_of_frozen_parts_are_public_whatever_mode_the_model_comes_in(name: str, mode: bool) -> None:
    model = ACCEPTED[name]().train(mode)
    check_module(model, ROWS)
    assert all(layer.training == mode for layer in model.modules())  # it is left as it came


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("name", REFUSED)
def test_all_other_statistics_are_refused_whatever_mode_the_model_comes_in(name: str, mode: bool) -> None:
    with pytest.raises(UnsoundRound, match="outside the row") as caught:
        check_module(REFUSED[name]().train(mode), ROWS)
    assert "freeze" in caught.value.fix


def test_a_part_that_trains_anything_is_in_training_and_its_frozen_parts_are_not() -> None:
    model = training_mode(pretrained().eval())
    modes = {name: layer.training for name, layer in model.named_modules()}
    assert modes["body"] is modes["body.1"] is modes["body.3"] is False
    assert modes[""] is modes["dropout"] is modes["head"] is True


def test_a_layer_in_a_frozen_part_and_beside_it_is_in_evaluation() -> None:
    shared = nn.Dropout()
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), shared).requires_grad_(False), shared, nn.Linear(4, 2))
    assert not training_mode(model)[1].training


def test_gradients_of_records_behind_a_frozen_norm_are_those_of_a_loop_in_one_pass() -> None:
    module = training_mode(pretrained())
    module.dropout.eval()  # the loop has no keys
    layout, y = Layout.of(module), torch.tensor([0, 1, 2, 1])
    clipped = ClippedSum(module, layout, cross_entropy, 0.1)
    found, slow = clipped(layout.row(module), IMAGES, y), torch.zeros(layout.dimension)
    for x, label in zip(IMAGES.split(1), y.split(1), strict=True):
        loss = cross_entropy(module(x), label).sum()
        trained = [p for p in module.parameters() if p.requires_grad]
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained)])
        slow += gradient * min(1.0, 0.1 / float(gradient.norm()))
    assert torch.allclose(found, slow, atol=1e-6)
    assert clipped.way().startswith("one_pass")
