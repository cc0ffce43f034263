"""Runs that share a ledger: the tenth experiment knows of the nine before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sfumato import FixedSize, Plan, Poisson, Relation, Round, Sgd, Unit, classification
from sfumato.engine.simulate import simulate
from sfumato.errors import BudgetExceeded, LedgerError
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.pieces.mean import RealisedMean
from tests.helpers import dp_round, linear, made_up_population

PEOPLE = made_up_population([3] * 20)


def train(ledger: Path, round: Round | None = None, rounds: int = 2, **options: Any) -> Any:
    simulation = simulate(
        round or dp_round(),
        PEOPLE,
        linear(),
        classification(3),
        rounds=rounds,
        plan=Plan(),
        shared_ledger=ledger,
        **options,
    )
    for _ in simulation:
        pass
    return simulation


def test_runs_add_up(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    first = train(path)
    train(path)
    spent = Ledger(path, None).spent(Unit.CLIENT)
    assert spent is not None
    assert spent.world.times == 4  # type: ignore[attr-defined]
    assert first.ledger.count == 2  # each run's own has its own rounds only


def test_samplers_of_both_kinds_add_up_under_replace(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    train(path, dp_round(sample=Poisson(0.5)))
    train(path, dp_round(sample=FixedSize(5)))
    spent = Ledger(path, None).spent(Unit.CLIENT)
    assert spent is not None
    assert spent.relation is Relation.REPLACE


def test_the_common_budget_stops_a_later_run(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    spent = train(path, rounds=3).guarantee(1e-2).epsilon
    Ledger(path, None).set_budget(Budget(spent * 1.2, 1e-2))
    with pytest.raises(BudgetExceeded, match="common budget"):
        train(path, rounds=50)
    after = Ledger(path, None)
    assert 3 <= after.count < 20


def test_a_killed_round_is_paid_for_once_in_both_ledgers(tmp_path: Path) -> None:
    path, folder = tmp_path / "shared.sqlite", tmp_path / "run"
    train(path, rounds=2, folder=folder)
    train(path, rounds=4, folder=folder, resume=True)
    assert Ledger(path, None).count == 4
    assert Ledger(folder / "ledger.sqlite", None).count == 4


def test_seeded_and_non_private_runs_are_refused_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    baseline = Round(sample=Poisson(0.5), local=Sgd(lr=0.1, epochs=1), aggregate=RealisedMean(), nonprivate=True)
    with pytest.raises(LedgerError, match="comes from a seed"):
        train(path, seed=0)
    with pytest.raises(LedgerError, match="hides nothing"):
        train(path, baseline)
    with pytest.raises(LedgerError, match="hides nothing"):
        train(path, dp_round(unproven=True))
    assert not path.exists()
    train(path, seed=0, force_ledger=True)
    assert Ledger(path, None).entries()[0].seeded


def test_noise_of_one_seed_is_counted_for_one_run(tmp_path: Path) -> None:
    """Two results with the same noise differ by none, whatever data they were computed from: the second is refused."""
    path = tmp_path / "shared.sqlite"

    def again(population: Any, seed: int | None = 0, **other: Any) -> int:
        options: dict[str, Any] = {
            "rounds": 2,
            "seed": seed,
            "shared_ledger": path,
            "force_ledger": True,
            "plan": Plan(),
        }
        for _ in simulate(dp_round(), population, linear(), classification(3), **{**options, **other}):
            pass
        return Ledger(path, None).count

    assert again(PEOPLE) == 2
    for people in (PEOPLE, made_up_population([3] * 20, seed=5)):
        with pytest.raises(LedgerError):
            again(people)
    assert again(PEOPLE, seed=1) == 4
    assert again(PEOPLE, description="other settings") == 6
    assert again(PEOPLE, seed=None) == 8 and again(PEOPLE, seed=None) == 10


def test_a_run_cannot_join_a_shared_ledger_midway(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rounds": 2, "plan": Plan(), "folder": tmp_path / "run"}
    for _ in simulate(dp_round(), PEOPLE, linear(), classification(3), **settings):
        pass
    with pytest.raises(LedgerError, match="it began without that ledger"):
        train(tmp_path / "shared.sqlite", rounds=4, folder=tmp_path / "run", resume=True)
    assert not (tmp_path / "shared.sqlite").exists()
    settings.update(rounds=3, resume=True)
    assert len(list(simulate(dp_round(), PEOPLE, linear(), classification(3), **settings))) == 1, (
        "it goes on without it"
    )


def test_an_older_copy_of_the_shared_ledger_is_refused(tmp_path: Path) -> None:
    path, folder = tmp_path / "shared.sqlite", tmp_path / "run"
    train(path, folder=folder)
    older = path.read_bytes()
    train(path, rounds=4, folder=folder, resume=True)
    path.write_bytes(older)
    with pytest.raises(LedgerError, match="lacks 2 of the 4 rounds"):
        train(path, rounds=5, folder=folder, resume=True)


def test_a_forced_run_goes_on_without_being_forced_again(tmp_path: Path) -> None:
    path, folder = tmp_path / "shared.sqlite", tmp_path / "run"
    train(path, seed=0, force_ledger=True, folder=folder)
    for _ in simulate(dp_round(), PEOPLE, linear(), classification(3), rounds=3, seed=0, folder=folder, resume=True):
        pass
    assert Ledger(path, None).count == 3
