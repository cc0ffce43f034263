"""A plan that changes the result is not taken."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

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
from sfumato.engine.plan import Plan, _Trial, choose
from sfumato.gradients import ClippedSum
from sfumato.update import Layout


def statistics_of_the_batch() -> nn.Module:
    normal = nn.BatchNorm1d(8, track_running_stats=False)
    return nn.Sequential(nn.Linear(6, 8), normal, nn.ReLU(), nn.Linear(8, 3))


def statistics_of_words() -> nn.Module:
    normal = nn.BatchNorm1d(24, track_running_stats=False)
    return nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), normal, nn.Linear(24, 3))


class OwnBackward(torch.autograd.Function):
    """The identity, whose backward pass looks at all records, and makes a difference only when one of them is far off."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.contiguous().view(x.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * min(1.0, 100.0 / float(gradients[0].norm()))


class Sneaky(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.last(OwnBackward.apply(torch.relu(self.first(x)))))  # type: ignore[no-untyped-call]


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
        (statistics_of_the_batch, "stacked", True),
        (statistics_of_the_batch, "vmapped", True),
        (statistics_of_words, "stacked", True),
        (Sneaky, "stacked", False),
    ],
)
def test_a_plan_is_compared_on_uneven_clients(make: Callable[[], nn.Module], path: str, agrees: bool) -> None:
    with Key.from_seed(0).seeding_torch():
        module = make()
    words = make is statistics_of_words
    example = Records(
        torch.zeros(1, 6, dtype=torch.int64 if words else torch.float32), torch.zeros(1, dtype=torch.int64)
    )
    trial = _Trial(Sgd(lr=0.3, epochs=1, batch_size=8), module, Layout.of(module), classification(3), example)
    assert trial.agrees(Plan(path, 3)) == agrees
    if agrees:
        key = Key.from_seed(4)
        x = (key.normal(13, 6).abs() * 3).long() if words else key.normal(13, 6).float()
        trial.clients[:3] = [Records(x[:size], torch.arange(size) % 3) for size in (13, 7, 3)]
        together = trial.rows(Plan(path, 3), range(3), trial.module)
        apart = torch.cat([trial.rows(Plan(), [client], trial.module) for client in range(3)])
        assert torch.allclose(together, apart, atol=1e-6) and apart.norm() > 0.1


class ByNumber(nn.Module):
    """What it does depends on how many records there are, and 3 clients have too few to show it."""

    def __init__(self, many: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()
        self.many, self.first, self.last = many, nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.last(self.first(x).relu() if self.many(x) else self.first(x).tanh()))


def _by_size(x: torch.Tensor) -> bool:
    return x.view(x.size(0), -1).size(dim=0) > 100


@pytest.mark.parametrize(
    "many", [lambda x: len(x) > 100, lambda x: x.shape[0] > 100, _by_size, lambda x: x.numel() > 600]
)
def test_what_others_bring_into_a_block_decides_nothing(many: Callable[[torch.Tensor], bool]) -> None:
    with Key.from_seed(0).seeding_torch():
        module = ByNumber(many)
    example = Records(torch.zeros(1, 6), torch.zeros(1, dtype=torch.int64))
    trial = _Trial(Sgd(lr=0.3, epochs=1, batch_size=8), module, Layout.of(module), classification(3), example)
    together = trial.rows(Plan("stacked", 64), range(64), trial.module)
    apart = trial.rows(Plan(), [0], trial.module)
    assert torch.allclose(together[0], apart[0], atol=1e-6) and apart.norm() > 0.1


def test_a_layer_that_comes_twice_is_left_as_it_was() -> None:
    layer = nn.Linear(6, 6)
    module = nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(6, 3))
    clients = [(Key.from_seed(n).normal(8, 6).float(), torch.arange(8) % 3) for n in range(4)]
    found = {}
    for plan in (Plan(), Plan(workers=2), Plan("stacked", 2), Plan("vmapped", 2)):
        round = Round(Everyone(), Sgd(lr=0.3, epochs=2, batch_size=4), aggregate=RealisedMean(), unproven=True)
        run = simulate(round, Population.from_list(clients), module, classification(3), rounds=2, seed=0, plan=plan)
        found[plan] = [progress.params for progress in run][-1]
    assert all(torch.allclose(params, found[Plan()], atol=1e-6) for params in found.values())
    trial = _Trial(
        Sgd(lr=0.3, epochs=1, batch_size=8), module, Layout.of(module), classification(3), Records(*clients[0])
    )
    trial.rows(Plan(), [0], trial.module)
    assert all(isinstance(p, nn.Parameter) for part in trial.module.modules() for p in part._parameters.values())


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


def test_a_backward_pass_of_its_own_is_not_trusted_with_several_records() -> None:
    module, x = Sneaky(), Key.from_seed(1).normal(8, 6).float()
    layout, y = Layout.of(module), torch.ones(8)
    y[7] = 1e6
    clipped = ClippedSum(module, layout, lambda out, y: (out.sum(1) - y).square(), 0.1)
    few, more = clipped(layout.row(module), x[:7], y[:7]), clipped(layout.row(module), x, y)
    assert (more - few).norm() <= 0.1 and clipped.way() == "one_by_one"


@pytest.mark.parametrize(
    ("plan", "cohort", "waves", "together"),
    [
        (Plan(), 7, 7, 1),
        (Plan(workers=2), 7, 4, 2),
        (Plan("stacked", 8), 20, 3, 1),
        (Plan("stacked", 64, 2), 50, 1, 2),
        (Plan("stacked", 8, 2), 3, 1, 2),
        (Plan("stacked", 8, 2), 1, 1, 1),
    ],
)
def test_a_plan_is_timed_as_its_cohort_would_be_run(
    plan: Plan, cohort: int, waves: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = nn.Linear(6, 3)
    example = Records(torch.zeros(2, 6), torch.zeros(2, dtype=torch.int64))
    trial = _Trial(Sgd(lr=0.1, epochs=1, batch_size=2), module, Layout.of(module), classification(3), example)
    blocks: list[int] = []
    on_main: set[bool] = set()

    def rows(plan: Plan, clients: range, module: nn.Module) -> torch.Tensor:
        blocks.append(len(clients))
        on_main.add(threading.current_thread() is threading.main_thread())
        return torch.zeros(len(clients), 1)

    monkeypatch.setattr(trial, "rows", rows)
    monkeypatch.setattr("sfumato.engine.plan._least_seconds", lambda run: (run(), 1.0)[1])
    assert trial.seconds(plan, cohort) == waves
    assert on_main == {plan.workers == 1}
    assert len(blocks) == together and cohort <= waves * sum(blocks) < cohort + together * waves


def test_a_plan_of_shards_is_measured_with_one_thread_on_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Plan, int, int]] = []

    def seconds(self: _Trial, plan: Plan, cohort: int) -> float:
        seen.append((plan, cohort, torch.get_num_threads()))
        return 1.0

    clients = [(torch.ones(3, 6), torch.zeros(3, dtype=torch.int64))] * 40
    round = Round(sample=Everyone(), local=Sgd(lr=0.1, epochs=1), aggregate=RealisedMean(), nonprivate=True)
    run = simulate(round, Population.from_list(clients), nn.Linear(6, 3), classification(3), rounds=1)
    job = run.simulation.job
    monkeypatch.setattr(_Trial, "seconds", seconds)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        plan = choose(job.slots, job.module, job.objective, job.example, 40, shards=4)
        assert plan.shards == 4 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert {(each.workers, cohort, threads) for each, cohort, threads in seen} == {(1, 10, 1)}
