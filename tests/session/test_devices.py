"""A loop of one's own over a module that lies elsewhere: noise is drawn on the CPU, and what is trained is what the CPU trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from sfumato import classification, evaluate, private
from sfumato.data.records import Records
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.models.check import check_module
from tests.engine.test_several_inputs import Reader
from tests.helpers import linear
from tests.pretend_device import accepting as accepting
from tests.pretend_device import pretend_device, values

Optimizers = Callable[[Any], torch.optim.Optimizer]
X, Y = Key.from_seed(3).normal(40, 6).float(), torch.arange(40) % 3
SEVERAL = {
    "input_ids": torch.arange(200).reshape(40, 5) % 11,
    "attention_mask": torch.ones(40, 5).bool(),
    "age": X[:, 0],
}


def trained(device: str, optimizer: Optimizers, given: Any, module: nn.Module) -> tuple[list[torch.Tensor], float]:
    module = module.to(device)
    moves = optimizer(module.parameters())
    settings: dict[str, Any] = {"batch_size": 10, "records": 40, "steps": 3, "noise_multiplier": 1.0, "seed": 0}
    session = private(module, moves, given, classification(3), **settings)
    for progress in session:
        assert next(progress.module.parameters()).device == torch.device("cpu")
    return [parameter.detach() for parameter in module.parameters()], session.epsilon(1e-3)


@pytest.mark.usefixtures("accepting")
@pytest.mark.parametrize(
    "optimizer",
    [lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9), lambda p: torch.optim.Adam(p, lr=0.1, foreach=False)],
    ids=["sgd", "adam"],
)
@pytest.mark.parametrize("several", [False, True], ids=["one input", "several"])
@pytest.mark.parametrize("moved", [False, True], ids=["records here", "records there"])
def test_a_session_elsewhere_trains_what_the_cpu_trains(optimizer: Optimizers, several: bool, moved: bool) -> None:
    x: Any = SEVERAL if several else X
    module = Reader if several else linear
    expected, epsilon = trained("cpu", optimizer, (x, Y), module())
    with pretend_device() as device:
        far: Any = {name: value.to(device) for name, value in x.items()} if several else x.to(device)
        given = (far, Y.to(device)) if moved else (x, Y)
        found, same = trained(device, optimizer, given, module())
    assert same == epsilon
    assert all(torch.equal(values(one), other) for one, other in zip(found, expected, strict=True))


@pytest.mark.usefixtures("accepting")
def test_a_module_is_checked_and_measured_where_it_is() -> None:
    here = evaluate(linear(), Records(X, Y), classification(3))
    with pretend_device() as device:
        module = linear().to(device)
        check_module(module, X.to(device))
        assert evaluate(module, Records(X, Y), classification(3)) == here


class Draws(nn.Linear):
    """Draws numbers where its records are, which no key controls."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + torch.empty_like(x).normal_())


@pytest.mark.usefixtures("accepting")
def test_numbers_that_a_module_draws_there_are_found() -> None:
    with pretend_device() as device, pytest.raises(BadValue, match="no key controls"):
        check_module(Draws(6, 3).to(device), X.to(device))
