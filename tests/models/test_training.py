"""The larger models through the engine's way of training one client, against torch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from sfumato import Sgd
from sfumato.data.population import Records
from sfumato.engine.plan import Plan
from sfumato.key import Key
from sfumato.local.task import Task
from sfumato.models import build
from sfumato.models.resnet import resnet_18
from sfumato.objective import next_character
from sfumato.update import Layout

KEY = Key.from_seed(0)


def _records(shape: tuple[int, ...], count: int) -> Records:
    y = torch.arange(count) % 10
    if len(shape) == 1:
        return Records(torch.from_numpy((KEY.integers(count * shape[0]) % 10).astype("int64")).reshape(count, -1), y)
    return Records(KEY.normal(count, *shape).float(), y)


@pytest.mark.parametrize(("name", "shape"), [("char-lstm:12", (9,)), ("char-lstm:12x1", (9,)), ("resnet", (3, 16, 16))])
def test_a_step_is_the_one_that_torch_takes(name: str, shape: tuple[int, ...]) -> None:
    with KEY.seeding_torch():
        module = resnet_18(3, 10, width=16) if name == "resnet" else build(name, shape, 10, KEY)
    records, loss, layout = _records(shape, 6), next_character(10).loss, Layout.of(module)
    plain = copy.deepcopy(module)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss(plain(records.x), records.y).mean().backward()
        optimizer.step()
    params = layout.row(module)
    elsewhere = copy.deepcopy(module)
    for parameter in elsewhere.parameters():  # a client's own parameters count, not those that the module holds
        nn.init.zeros_(parameter)
    task = Task(Plan().forward(elsewhere), layout, loss, params, params[None], [records], [KEY], 0)
    (row,) = Sgd(lr=0.1, epochs=2, batch_size=6).train(task)
    wanted = layout.row(plain) - params
    assert float(wanted.norm()) > 1e-3
    assert float((row - wanted).norm()) <= 1e-4 * float(wanted.norm())
