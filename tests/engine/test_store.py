"""One checkpoint for several rounds: what was not written is computed again, with the same noise, and is paid for once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sfumato import DpSgd, Everyone, OneHolder, Poisson, Population, RealisedMean, Round, Unit, classification
from sfumato.engine.plan import Plan, choose
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Simulation
from tests.helpers import linear, made_up_population

ROUND = Round(Everyone(), DpSgd(1, Poisson(0.5), 40), RealisedMean(), channel=OneHolder(), unit=Unit.RECORD)


def begun(folder: Path, seconds: float = 1e9, **more: Any) -> Simulation:
    population = more.pop("population", None) or made_up_population([40])
    facts: dict[str, Any] = {"rounds": 5, "seed": 0, "checkpoint_seconds": seconds, **more}
    return simulate(ROUND, population, linear(), classification(3), folder=folder, **facts)


def finished(run: Simulation) -> torch.Tensor:
    *_, last = run
    return last.params


def broken_off(run: Simulation, rounds: int) -> None:
    rest = iter(run)
    for _ in range(rounds):
        next(rest)


def test_a_run_that_was_killed_between_checkpoints_ends_as_it_would_have(tmp_path: Path) -> None:
    whole = finished(begun(tmp_path / "whole", seconds=0.0))
    killed = begun(tmp_path / "killed")
    broken_off(killed, 3)
    assert killed.ledger.count == 3 and not any(entry.settled for entry in killed.ledger.entries())
    again = begun(tmp_path / "killed", resume=True)
    assert again.start.round == 0
    assert torch.equal(finished(again), whole)
    after = begun(tmp_path / "killed", resume=True)
    assert after.ledger.count == 5 and all(entry.settled for entry in after.ledger.entries())


def test_who_breaks_off_and_stores_goes_on_from_there(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    broken_off(run, 3)
    run.store()
    run.store()  # there is nothing left to write
    assert all(entry.settled for entry in run.ledger.entries())
    again = begun(tmp_path / "run", resume=True)
    assert again.start.round == 3
    assert torch.equal(finished(again), finished(begun(tmp_path / "whole", seconds=0.0)))


def test_data_that_may_have_changed_have_a_checkpoint_for_every_round(tmp_path: Path) -> None:
    """Their rounds would be computed again with other noise, and be paid for twice."""
    held = made_up_population([40]).client(0).train
    population = Population.from_function(lambda client: held, size=1, name="changing")
    run = begun(tmp_path / "run", population=population)
    broken_off(run, 3)
    again = begun(tmp_path / "run", population=population, resume=True)
    assert again.start.round == 3


def test_one_client_has_all_threads_and_nothing_is_tried_out(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr("sfumato.engine.plan.made_up", lambda *_: 1 / 0)
    run = begun(tmp_path / "run")
    assert choose(run.job.slots, run.job.module, run.job.objective, run.job.example, 1) == Plan()
