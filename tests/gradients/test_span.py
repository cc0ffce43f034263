"""A first layer in the span of its records takes the steps that autograd takes in its weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from sfumato import Key, Records, Sgd, classification
from sfumato.engine.plan import Plan
from sfumato.gradients import mean_gradients, span
from sfumato.local.penalty import NormPenalty
from sfumato.local.sharpness import SharpnessAware
from sfumato.local.task import Task
from sfumato.update import Layout
from tests.gradients.test_chain import by_autograd, seeded, trained

Made = Callable[[], nn.Module]


def logistic() -> nn.Module:
    return nn.Linear(400, 20)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(400, 20, bias=False), nn.ReLU(), nn.Linear(20, 3))


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The width of each client's span, 0 for none."""
    found: list[int] = []

    def watched(*args: Any) -> int:
        found.append(span.span_width(*args))
        return found[-1]

    monkeypatch.setattr(mean_gradients, "span_width", watched)
    return found


@pytest.mark.parametrize("options", [{}, {"momentum": 0.6}, {"lr_decay": 0.5}], ids=str)
@pytest.mark.parametrize("sizes", [(9,), (9, 9), (4, 9, 1, 7), (5, 70, 9, 66)], ids=str)
@pytest.mark.parametrize(("make", "shape"), [(logistic, (400,)), (perceptron, (20, 20))])
def test_the_steps_are_those_of_autograd(
    make: Made, shape: tuple[int, ...], sizes: tuple[int, ...], options: dict[str, Any], widths: list[int]
) -> None:
    plan = Plan("stacked", len(sizes)) if len(sizes) > 1 else Plan()
    task = seeded(make), Sgd(lr=0.1, epochs=4, batch_size=4, **options), plan, sizes, shape
    found, expected = trained(*task), by_autograd(*task)
    assert widths == [64 if size <= 64 else 256 for size in sizes]
    assert ((found - expected).norm(dim=1) < 1e-5 * expected.norm(dim=1)).all() and (expected.norm(dim=1) > 0.1).all()


@pytest.mark.parametrize(
    "options",
    [
        {"weight_decay": 0.1},
        {"penalties": (NormPenalty(1.0),)},
        {"gradient": SharpnessAware(0.3)},
        {"project": 0.5},
    ],
    ids=str,
)
def test_steps_that_are_not_linear_stay_in_the_weight(options: dict[str, Any], widths: list[int]) -> None:
    trained(seeded(logistic), Sgd(lr=0.1, epochs=4, batch_size=4, **options), Plan(), (9,), (400,))
    assert not any(widths)


def task_of(records: Records, starts: torch.Tensor | None = None) -> Task:
    module = seeded(logistic)
    layout = Layout.of(module)
    params = layout.row(module)
    key, loss = Key.from_seed(0), classification(3).loss
    return Task(
        Plan().forward(module), layout, loss, params, params[None] if starts is None else starts, [records], [key], 0
    )


def test_a_client_with_a_model_of_its_own_stays_in_the_weight(widths: list[int]) -> None:
    records = Records(Key.from_seed(2).normal(9, 400).float(), torch.arange(9) % 3)
    task = task_of(records)
    local = Sgd(lr=0.1, epochs=4, batch_size=4)
    row = local.train(task)
    own = local.train(replace(task, starts=(3.0 * task.params)[None]))
    same = local.train(replace(task, starts=task.params.clone()[None]))
    assert widths == [64]
    assert torch.allclose(same, row, atol=1e-6) and not torch.allclose(own - 2.0 * task.params, row, atol=1e-2)


def test_records_whose_squares_overflow_stay_in_the_weight(widths: list[int]) -> None:
    x = Key.from_seed(2).normal(9, 400).float()
    x[3] = 1e25 * seeded(logistic).weight[0]  # type: ignore[index]
    row = Sgd(lr=0.1, epochs=4, batch_size=4).train(task_of(Records(x.detach(), torch.arange(9) % 3)))
    assert widths == [0]
    assert row.isfinite().all() and row.norm() > 0.1  # class 0 is certain of record 3, which then moves nothing


def test_a_linear_layer_on_sequences_stays_in_the_weight(widths: list[int]) -> None:
    module = nn.Sequential(nn.Linear(60, 4), nn.Flatten(), nn.Linear(12, 3))
    task = seeded(lambda: module), Sgd(lr=0.1, epochs=4, batch_size=4), Plan(), (9,), (3, 60)
    assert torch.allclose(trained(*task), by_autograd(*task), atol=1e-5)
    assert widths == [0]


def test_a_starting_point_that_only_looks_shared_is_not(widths: list[int]) -> None:
    one = Records(Key.from_seed(2).normal(9, 400).float(), torch.arange(9) % 3)
    task = task_of(one)
    starts = torch.stack([task.params, 3.0 * task.params])
    both = replace(
        task,
        forward=Plan("stacked", 2).forward(task.forward.module),
        params=starts[0],
        starts=starts,
        clients=[one, one],
        keys=[*task.keys, *task.keys],
    )
    local = Sgd(lr=0.1, epochs=4, batch_size=4)
    rows = local.train(both)
    assert not widths
    own = local.train(replace(task, starts=starts[1:]))
    assert torch.allclose(rows[1:], own, atol=1e-5) and torch.allclose(rows[:1], local.train(task), atol=1e-5)


@pytest.mark.parametrize("other", ["huge", "many", "nan"])
def test_no_client_decides_how_another_is_trained(other: str) -> None:
    """The rows of the others are the same to the bit."""
    module = seeded(lambda: nn.Sequential(nn.Linear(400, 20), nn.ReLU(), nn.Linear(20, 3)))
    layout, loss = Layout.of(module), classification(3).loss
    params = layout.row(module)
    clients = [Records(Key.from_seed(i).normal(9, 400).float(), torch.arange(9) % 3) for i in range(6)]
    x = clients[0].x.clone()
    x[0, 0] = {"huge": 1e20, "nan": float("nan")}.get(other, 1.0)
    changed = Records(x, clients[0].y)
    if other == "many":
        changed = Records(Key.from_seed(9).normal(500, 400).float(), torch.arange(500) % 3)
    local = Sgd(lr=0.5, epochs=20, batch_size=4, momentum=0.9)
    keys = [Key.from_seed(i) for i in range(6)]
    rows = []
    for first in (clients[0], changed):
        starts, forward = params.expand(6, -1), Plan("stacked", 6).forward(module)
        rows.append(local.train(Task(forward, layout, loss, params, starts, [first, *clients[1:]], keys, 0)))
    assert torch.equal(rows[0][1:], rows[1][1:]) and not torch.equal(rows[0][0], rows[1][0])


def test_records_may_require_a_gradient(widths: list[int]) -> None:
    records = Records(Key.from_seed(2).normal(9, 400).float(), torch.arange(9) % 3)
    local = Sgd(lr=0.1, epochs=4, batch_size=4)
    expected = local.train(task_of(records))
    found = local.train(task_of(Records(records.x.clone().requires_grad_(), records.y)))
    assert widths == [64, 64] and torch.equal(found, expected) and not found.requires_grad
