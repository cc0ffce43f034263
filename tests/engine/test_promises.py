"""A run and its ledger at their edges: forks within a round, copies, threads on one ledger, and what an ended run leaves."""

from __future__ import annotations

import copy
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from sfumato import Everyone, classification, simulate
from sfumato.account.event import GaussianEvent, Relation, Unit
from sfumato.engine.checkpoint import Checkpoint
from sfumato.engine.simulate import simulate as engine_simulate
from sfumato.errors import BadValue, BudgetExceeded, LedgerError, UnsoundRound
from sfumato.ledger.basis import AdaptiveBasis, PlanBasis
from sfumato.ledger.file import connect
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.ledger.spent import Cost, Costs
from tests.helpers import dp_round, linear, made_up_population

PEOPLE = made_up_population([4] * 6)


def begun(folder: Path | None = None, **changed: Any) -> Any:
    return simulate(
        dp_round(sample=Everyone()),
        changed.pop("people", PEOPLE),
        linear(),
        classification(3),
        rounds=changed.pop("rounds", 4),
        folder=folder,
        **changed,
    )


def test_a_fork_within_a_round_shows_nothing_in_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the two would release the same noise on what may be other data, for one reservation."""

    started: list[bool] = []

    def load(number: int) -> Any:
        if started:
            monkeypatch.setattr(os, "getpid", lambda: -1)  # as the child of a fork sees it
        return PEOPLE.client(number)

    run = begun(tmp_path / "run", people=replace(PEOPLE, load=load))
    started.append(True)
    shown: list[int] = []
    with pytest.raises(UnsoundRound):
        shown.extend(progress.round for progress in run)
    assert not shown
    stored = Checkpoint.read(tmp_path / "run")
    assert stored is not None and stored.round == 0 and run.ledger.count == 1


def test_a_forked_child_that_ends_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its parent stored meanwhile would be replaced."""
    run = engine_simulate(
        dp_round(), PEOPLE, linear(), classification(3), rounds=4, folder=tmp_path, checkpoint_every=3
    )
    rounds = iter(run)
    next(rounds)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    rounds.close()  # type: ignore[attr-defined]
    stored = Checkpoint.read(tmp_path)
    assert stored is not None and stored.round == 0


def test_a_run_cannot_be_copied() -> None:
    with pytest.raises(BadValue):
        copy.copy(begun().simulation)


def test_a_confirmed_reservation_stays_whatever_another_thread_is_refused() -> None:
    ledger = Ledger(None, "people")
    small, large = (
        Costs({Unit.CLIENT: Cost(Relation.ADD_REMOVE, GaussianEvent(ratio), None)}) for ratio in (50.0, 0.1)
    )
    ledger.set_budget(Budget(3.0, 1e-5))
    confirmed: list[int] = []

    def reserve(costs: Costs) -> None:
        for number in range(20):
            try:
                confirmed.append(ledger.reserve(run="a", round=number, costs=costs))
            except BudgetExceeded:
                assert costs is large

    threads = [threading.Thread(target=reserve, args=(costs,)) for costs in (small, large, small)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(confirmed) == ledger.count == 40 and not ledger.damage()


def test_an_older_checkpoint_with_personal_models_goes(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    next(iter(run))
    run.close()
    old = tmp_path / "run" / "checkpoint.safetensors"
    save_file({"memory.start": torch.ones(2)}, old)
    now = run.simulation.now
    now.write(tmp_path / "run", run.ledger, "run")
    assert not old.exists()


def test_what_an_earlier_end_wrote_goes_when_a_run_goes_on(tmp_path: Path) -> None:
    list(begun(tmp_path / "run"))
    assert (tmp_path / "run" / "report.html").exists()
    longer = begun(tmp_path / "run", rounds=6, resume=True)
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert not left & {"run.json", "report.html", "params.safetensors"}
    list(longer)


def test_an_end_is_not_written_over_a_run_that_was_resumed_elsewhere(tmp_path: Path) -> None:
    first = begun(tmp_path / "run")
    next(iter(first))
    first.close()
    list(begun(tmp_path / "run", resume=True))
    with pytest.raises(BadValue):
        first.finish("good enough")


def test_a_ledger_whose_maker_was_killed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.touch()
    assert Checkpoint.read(tmp_path) is None
    assert Ledger(path, "people").count == 0


def test_a_budget_is_kept_by_what_was_planned_alone() -> None:
    """PRIVACY R13: the next run may have been chosen by what the first released; a budget of 2 was passed at 2.214."""
    first, second = (
        Costs({Unit.CLIENT: Cost(Relation.ADD_REMOVE, GaussianEvent(ratio), None)}) for ratio in (2.5, 3.32)
    )
    planned = Ledger(None, "people")
    planned.set_budget(Budget(2.0, 1e-5))
    planned.reserve(run="a", round=0, costs=first, basis=PlanBasis(((first, 1),)))
    with pytest.raises(BudgetExceeded):
        planned.reserve(run="b", round=0, costs=second)
    adaptive = Ledger(None, "people")
    adaptive.set_budget(Budget(4.0, 1e-5))
    adaptive.reserve(run="a", round=0, costs=first, basis=AdaptiveBasis(8.0))
    adaptive.reserve(run="b", round=0, costs=second)
    assert adaptive.count == 2


def test_a_planned_cost_that_is_gone_is_damage(tmp_path: Path) -> None:
    costs = Costs({Unit.CLIENT: Cost(Relation.ADD_REMOVE, GaussianEvent(1.0), None)})
    other = Costs({Unit.CLIENT: Cost(Relation.ADD_REMOVE, GaussianEvent(2.0), None)})
    ledger = Ledger(tmp_path / "ledger.sqlite", "people")
    ledger.reserve(run="a", round=0, costs=costs, basis=PlanBasis(((costs, 1), (other, 1))))
    assert not ledger.damage()
    connection = connect(tmp_path / "ledger.sqlite")
    connection.execute("DELETE FROM costs WHERE digest = ?", (other.digest,))
    connection.close()
    assert ledger.damage()


def test_a_begun_run_whose_ledger_was_emptied_is_refused(tmp_path: Path) -> None:
    next(iter(run := begun(tmp_path / "run")))
    run.close()
    for path in (tmp_path / "run").glob("ledger.sqlite*"):
        path.unlink()
    (tmp_path / "run" / "ledger.sqlite").touch()
    with pytest.raises(LedgerError):
        begun(tmp_path / "run", resume=True)
