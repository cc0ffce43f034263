"""Averaging of iterates: what is shown and kept is the average, and training goes on from the last iterate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from sfumato import Adam, Averaged, GradientDescent, Plan, classification, simulate
from sfumato.engine.checkpoint import Checkpoint
from sfumato.errors import BadValue
from sfumato.run.folder import load
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request
from sfumato.run.run import Run
from sfumato.update import Layout
from tests.helpers import dp_round, linear, made_up_population

PEOPLE = made_up_population([5, 1, 0, 12, 7, 3])


def _iterates(decay: float, folder: Path, rounds: int = 4) -> tuple[list[torch.Tensor], list[torch.Tensor], nn.Module]:
    """The iterates themselves, what is shown after each round, and the last module."""
    round = dp_round(optimizer=Averaged(GradientDescent(), decay))
    options = {"rounds": rounds, "seed": 0, "plan": Plan("stacked", 4), "folder": folder}
    own, shown = [], []
    for progress in simulate(round, PEOPLE, linear(), classification(3), **options):  # type: ignore[arg-type]
        last = Checkpoint.read(folder)
        assert last is not None
        own.append(last.params)
        shown.append(progress.params)
        module = progress.module
    return own, shown, module


def test_what_is_shown_is_the_weighted_mean_of_the_iterates(tmp_path: Path) -> None:
    own, shown, module = _iterates(0.6, tmp_path)
    for count in range(1, 5):
        weights = torch.tensor([0.6 ** (count - 1 - i) for i in range(count)], dtype=torch.float64)
        mean = (torch.stack(own[:count]).double() * weights[:, None]).sum(0) / weights.sum()
        torch.testing.assert_close(shown[count - 1].double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(Layout.of(module).row(module), shown[-1])
    assert not torch.allclose(own[-1], shown[-1])


def test_decay_0_shows_the_last_iterate(tmp_path: Path) -> None:
    own, shown, _ = _iterates(0.0, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(own, shown, strict=True))


def test_the_inner_optimizer_steps_as_it_does_alone() -> None:
    inner, params, update = Adam(lr=0.1), torch.zeros(3), torch.tensor([1.0, -2.0, 0.5])
    alone, state = params, inner.start(params)
    wrapped, both = params, Averaged(inner, 0.5).start(params)
    assert torch.equal(Averaged(inner, 0.5).report(wrapped, both), params)
    for _ in range(3):
        alone, state = inner.step(alone, state, update)
        wrapped, both = Averaged(inner, 0.5).step(wrapped, both, update)
        assert torch.equal(alone, wrapped)
    assert inner.report(alone, state) is alone


def test_averaging_costs_nothing() -> None:
    plain = dp_round()
    averaged = replace(plain, optimizer=Averaged(plain.optimizer, 0.9))
    costs = [round.derive(population=10, dimension=21).primary.world for round in (plain, averaged)]
    assert costs[0] == costs[1]


def test_a_run_keeps_and_evaluates_the_average_also_when_it_is_resumed(tmp_path: Path) -> None:
    data = DataRequest(clients=20, records_per_client=7)
    request = Request(rounds=4, seed=0, data=data, options={"average": 0.7})
    for line in Run(prepare(request), tmp_path / "whole"):
        pass
    stopped = Run(prepare(request), tmp_path / "stopped")
    lines = iter(stopped)
    next(lines), next(lines)
    stopped.close()
    for line in Run(prepare(request), tmp_path / "stopped", resume=True):
        pass
    last = Checkpoint.read(tmp_path / "whole")
    assert last is not None and line.round == 4
    modules = [load(tmp_path / name) for name in ("whole", "stopped")]
    rows = [Layout.of(module).row(module) for module in modules]
    torch.testing.assert_close(rows[0], last.state["average"] / (1 - 0.7**4))
    torch.testing.assert_close(rows[0], rows[1])
    assert not torch.allclose(rows[0], last.params)


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_a_decay_that_is_none_is_refused(decay: float) -> None:
    with pytest.raises(BadValue, match="decay"):
        Averaged(GradientDescent(), decay)


def test_an_average_of_averages_is_refused() -> None:
    with pytest.raises(BadValue, match="once"):
        Averaged(Averaged())
