"""One checkpoint for several steps: those after the last one are begun again, and counted again, where the run is no simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sfumato import DpSgd, Everyone, OneHolder, Poisson, RealisedMean, Round, Unit, classification
from sfumato.engine.plan import Plan, choose
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Simulation
from tests.helpers import linear, made_up_population

ROUND = Round(Everyone(), DpSgd(1, Poisson(0.5), 40), RealisedMean(), channel=OneHolder(), unit=Unit.RECORD)


def begun(folder: Path, every: int = 100, **more: Any) -> Simulation:
    facts: dict[str, Any] = {"rounds": 5, "seed": 0, "checkpoint_every": every, **more}
    return simulate(ROUND, made_up_population([40]), linear(), classification(3), folder=folder, **facts)


def finished(run: Simulation) -> torch.Tensor:
    *_, last = run
    return last.params


def killed_after(run: Simulation, rounds: int) -> None:
    """Nothing is stored at the end, as where the process is killed."""
    rest = iter(run)
    for _ in range(rounds):
        next(rest)
    run._unstored = False


def test_a_simulation_that_was_killed_between_checkpoints_ends_as_it_would_have(tmp_path: Path) -> None:
    whole = finished(begun(tmp_path / "whole", every=1))
    killed = begun(tmp_path / "killed")
    killed_after(killed, 3)
    assert killed.ledger.count == 3 and not any(entry.settled for entry in killed.ledger.entries())
    again = begun(tmp_path / "killed", resume=True)
    assert again.start.round == 0
    assert torch.equal(finished(again), whole)
    after = begun(tmp_path / "killed", resume=True)
    assert after.ledger.count == 5 and all(entry.settled for entry in after.ledger.entries())


def test_whoever_breaks_off_continues_from_there(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    rest = iter(run)
    for _ in range(3):
        next(rest)
    rest.close()  # type: ignore[attr-defined]
    run.store()  # there is nothing left to write
    assert all(entry.settled for entry in run.ledger.entries())
    again = begun(tmp_path / "run", resume=True)
    assert again.start.round == 3
    assert torch.equal(finished(again), finished(begun(tmp_path / "whole", every=1)))


def test_one_client_has_all_threads_and_nothing_is_tried_out(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr("sfumato.engine.plan.made_up", lambda *_: 1 / 0)
    run = begun(tmp_path / "run")
    assert choose(run.job.slots, run.job.module, run.job.objective, run.job.example, 1) == Plan()
