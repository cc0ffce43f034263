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
from sfumato.local import span
from sfumato.local.gradients import NormPenalty, SharpnessAware
from sfumato.local.task import Task
from sfumato.update import Layout
from tests.local.test_chain import by_autograd, seeded, trained

Made = Callable[[], nn.Module]


def logistic() -> nn.Module:
    return nn.Linear(60, 3)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(60, 20, bias=False), nn.ReLU(), nn.Linear(20, 3))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each block was trained in a span."""
    found: list[bool] = []
    of = span.Span.of

    def watched(*args: Any) -> Any:
        result = of(*args)
        found.append(result is not None)
        return result

    monkeypatch.setattr(span.Span, "of", staticmethod(watched))
    return found


@pytest.mark.parametrize("options", [{}, {"momentum": 0.6}, {"lr_decay": 0.5}], ids=str)
@pytest.mark.parametrize("sizes", [(9,), (9, 9), (4, 9, 1, 7)], ids=str)
@pytest.mark.parametrize(("make", "shape"), [(logistic, (60,)), (perceptron, (4, 15))])
def test_the_steps_are_those_of_autograd(
    make: Made, shape: tuple[int, ...], sizes: tuple[int, ...], options: dict[str, Any], taken: list[bool]
) -> None:
    plan = Plan("stacked", len(sizes)) if len(sizes) > 1 else Plan()
    task = seeded(make), Sgd(lr=0.1, epochs=4, batch_size=4, **options), plan, sizes, shape
    found, expected = trained(*task), by_autograd(*task)
    assert taken == [True]
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
def test_steps_that_are_not_linear_stay_in_the_weight(options: dict[str, Any], taken: list[bool]) -> None:
    trained(seeded(logistic), Sgd(lr=0.1, epochs=4, batch_size=4, **options), Plan(), (9,), (60,))
    assert not any(taken)


def task_of(records: Records, starts: torch.Tensor | None = None) -> Task:
    module = seeded(logistic)
    layout = Layout.of(module)
    params = layout.row(module)
    key, loss = Key.from_seed(0), classification(3).loss
    return Task(
        Plan().forward(module), layout, loss, params, params[None] if starts is None else starts, [records], [key], 0
    )


def test_a_client_with_a_model_of_its_own_stays_in_the_weight(taken: list[bool]) -> None:
    records = Records(Key.from_seed(2).normal(9, 60).float(), torch.arange(9) % 3)
    task = task_of(records)
    local = Sgd(lr=0.1, epochs=4, batch_size=4)
    row = local.train(task)
    own = local.train(replace(task, starts=(3.0 * task.params)[None]))
    same = local.train(replace(task, starts=task.params.clone()[None]))
    assert taken == [True, False, False]
    assert torch.allclose(same, row, atol=1e-6) and not torch.allclose(own - 2.0 * task.params, row, atol=1e-2)


def test_records_whose_squares_overflow_stay_in_the_weight(taken: list[bool]) -> None:
    x = Key.from_seed(2).normal(9, 60).float()
    x[3] = 1e25 * seeded(logistic).weight[0]  # type: ignore[index]
    row = Sgd(lr=0.1, epochs=4, batch_size=4).train(task_of(Records(x.detach(), torch.arange(9) % 3)))
    assert taken == [False]
    assert row.isfinite().all() and row.norm() > 0.1  # class 0 is certain of record 3, which then moves nothing


def test_a_linear_layer_on_sequences_stays_in_the_weight(taken: list[bool]) -> None:
    module = nn.Sequential(nn.Linear(60, 4), nn.Flatten(), nn.Linear(12, 3))
    task = seeded(lambda: module), Sgd(lr=0.1, epochs=4, batch_size=4), Plan(), (9,), (3, 60)
    assert torch.allclose(trained(*task), by_autograd(*task), atol=1e-5)
    assert taken == [False]
