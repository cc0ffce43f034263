"""A plan that changes the result is not taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from sfumato import (
    DpSgd,
    Everyone,
    Key,
    Poisson,
    Population,
    RealisedMean,
    Records,
    Round,
    Sgd,
    Unit,
    classification,
    simulate,
)
from sfumato.engine.plan import Plan, _Trial
from sfumato.update import Layout


def statistics_of_the_batch() -> nn.Module:
    normal = nn.BatchNorm1d(8, track_running_stats=False)
    return nn.Sequential(nn.Linear(6, 8), normal, nn.ReLU(), nn.Linear(8, 3))


def frozen_norm() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    with torch.no_grad():
        module[1].weight.copy_(torch.arange(1.0, 5.0))
    module[1].requires_grad_(False)
    return module


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("make", "path", "agrees"),
    [
        (perceptron, "stacked", True),
        (perceptron, "vmapped", True),
        (frozen_norm, "stacked", True),
        (statistics_of_the_batch, "stacked", False),
        (statistics_of_the_batch, "vmapped", False),
    ],
)
def test_a_plan_is_compared_on_uneven_clients(make: Callable[[], nn.Module], path: str, agrees: bool) -> None:
    with Key.from_seed(0).seeding_torch():
        module = make()
    example = Records(torch.zeros(1, 6), torch.zeros(1, dtype=torch.int64))
    trial = _Trial(Sgd(lr=0.3, epochs=1, batch_size=8), module, Layout.of(module), classification(3), example)
    assert trial.agrees(Plan(path, 3)) == agrees


def test_batches_of_few_records_give_the_same_bits_whichever_worker_meets_them_first() -> None:
    keys = [Key.from_seed(client) for client in range(9)]
    clients = [(key.normal(25, 6).float(), torch.arange(25) % 3) for key in keys]
    with Key.from_seed(0).seeding_torch():
        module = perceptron()
    local = DpSgd(steps=4, batch=Poisson(0.1), records=20)
    round = Round(sample=Everyone(), local=local, aggregate=RealisedMean(), unit=Unit.RECORD)

    def final(workers: int) -> torch.Tensor:
        plan = Plan(workers=workers)
        *_, last = simulate(
            round, Population.from_list(clients), module, classification(3), rounds=2, seed=0, plan=plan
        )
        return last.params

    assert all(torch.equal(final(1), final(workers)) for workers in (2, 3, 4))
