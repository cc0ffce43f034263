"""The ledger: never less than was spent, whoever writes and whatever crashes."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sfumato import Plan, classification
from sfumato.account import accountant
from sfumato.account.event import FixedSizeSampled, GaussianEvent, NonPrivate, PoissonSampled, Relation, Repeated, Unit
from sfumato.cli import run
from sfumato.engine.simulate import simulate
from sfumato.errors import BudgetExceeded, LedgerError
from sfumato.ledger.ledger import PROMISE, Budget, Ledger
from sfumato.ledger.spent import Cost
from tests.helpers import dp_round, linear, made_up_population
from tests.patience import PATIENCE

POISSON = PoissonSampled(0.1, GaussianEvent(1.0))
SWAPPED = Cost(Relation.REPLACE, PoissonSampled(0.1, GaussianEvent(0.5), Relation.REPLACE), None)
COSTS = {Unit.CLIENT: Cost(Relation.ADD_REMOVE, POISSON, None, SWAPPED)}


def reserve(ledger: Ledger, round: int, **changed: Any) -> int:
    facts: dict[str, Any] = {
        "run": "a",
        "round": round,
        "attempt": 0,
        "key": f"key {round}",
        "inputs": "x",
        "costs": COSTS,
    }
    return ledger.reserve(**{**facts, **changed})


def test_a_reservation_counts_before_it_is_settled(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite", "people")
    reserve(ledger, 0)
    again = Ledger(tmp_path / "l.sqlite", "people")
    assert again.spent(Unit.CLIENT) == Cost(Relation.ADD_REMOVE, POISSON, None)
    assert not again.entries()[0].settled


def test_a_full_disk_is_told_and_nothing_is_half_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite", "people")
    reserve(ledger, 0)
    with ledger.connected() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(LedgerError, match="cannot be written: database or disk is full.*Make room"):
            [reserve(ledger, round) for round in range(1, 1000)]
        held = ledger.count
        assert 1 <= held < 1000
        connection.execute("PRAGMA max_page_count=100000")
        reserve(ledger, held)
    assert ledger.count == held + 1 and ledger.damage() == []


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[bool]]:
    """Which of the connections that were made in the test so far are open."""
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def kept(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*arguments, **options))
        return made[-1]

    def is_open(connection: sqlite3.Connection) -> bool:
        try:
            connection.execute("SELECT 1")
        except sqlite3.ProgrammingError:
            return False
        return True

    monkeypatch.setattr(sqlite3, "connect", kept)
    return lambda: [is_open(connection) for connection in made]


def test_a_file_is_open_only_while_it_is_used(tmp_path: Path, opened: Callable[[], list[bool]]) -> None:
    ledger = Ledger(tmp_path / "l.sqlite", "people")
    reserve(ledger, 0)
    assert ledger.count == len(ledger.entries()) == 1 and not ledger.damage()
    before = len(opened())
    assert before and not any(opened())
    with ledger.connected() as connection, ledger.connected() as again:
        reserve(ledger, 1)
        assert again is connection and opened() == [*[False] * before, True]
    assert not any(opened()) and ledger.count == 2


def test_a_run_that_ends_or_is_left_leaves_no_file_open(tmp_path: Path, opened: Callable[[], list[bool]]) -> None:
    for name, rounds in (("whole", 2), ("left", 1)):
        people, told = (
            made_up_population([3] * 20),
            {"folder": tmp_path / name, "shared_ledger": tmp_path / "all.sqlite"},
        )
        simulation = simulate(dp_round(), people, linear(), classification(3), rounds=2, plan=Plan(), **told)
        assert not any(opened())
        left = iter(simulation)
        for _ in range(rounds):
            next(left)
        assert any(opened())
        left.close()
        assert not any(opened()) and simulation.guarantee(1e-3).epsilon is not None


def test_a_file_that_is_refused_is_left_closed(tmp_path: Path, opened: Callable[[], list[bool]]) -> None:
    (tmp_path / "text").write_text("Call me Ishmael." * 100)
    for population in ("people", None):
        with pytest.raises(LedgerError):
            Ledger(tmp_path / "text", population)
    assert opened() and not any(opened())


def test_a_ledger_in_memory_ends_with_the_object(opened: Callable[[], list[bool]]) -> None:
    ledger = Ledger(None, "people")
    reserve(ledger, 0)
    assert opened() == [True]
    del ledger
    assert opened() == [False]


def test_a_file_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite", "people")
    (tmp_path / "l.sqlite").unlink()
    for use in (lambda: ledger.count, lambda: reserve(ledger, 0)):
        with pytest.raises(LedgerError, match=r"l\.sqlite cannot be opened"):
            use()
    assert list(tmp_path.iterdir()) == []


def test_the_same_round_is_reserved_once() -> None:
    ledger = Ledger(None, "people")
    assert reserve(ledger, 0) == reserve(ledger, 0)
    assert ledger.count == 1


@pytest.mark.parametrize("changed", [{"inputs": "y"}, {"run": "b"}, {"costs": {}}])
def test_the_same_noise_on_anything_else_is_refused(changed: dict[str, Any]) -> None:
    ledger = Ledger(None, "people")
    reserve(ledger, 0)
    with pytest.raises(LedgerError, match="would cancel it"):
        reserve(ledger, 0, **changed)


def test_another_population_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path / "l.sqlite", "people")
    with pytest.raises(LedgerError, match="belongs to the population 'people'"):
        Ledger(tmp_path / "l.sqlite", "others")


def test_other_clients_of_the_same_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    first = Ledger(path, "people", "Ann and Bob")
    assert Ledger(path, "people", "Ann and Bob").id == first.id
    assert first.assumptions == () and "Ann" not in str(first.fact("clients"))
    for others in ("Ann and Eve", None):
        with pytest.raises(LedgerError, match=f"belongs to the clients {str(first.fact('clients'))[:8]} of 'people'"):
            Ledger(path, "people", others)
    unnamed = Ledger(tmp_path / "unnamed.sqlite", "people")
    assert len(unnamed.assumptions) == 1
    with pytest.raises(LedgerError, match="ids="):
        Ledger(tmp_path / "unnamed.sqlite", "people", "Ann and Bob")


def test_the_digest_of_clients_is_the_ledgers_own() -> None:
    """Whoever sees what two ledgers print cannot tell whether they have the same clients."""
    one, other = (Ledger(None, "people", "Ann and Bob") for _ in range(2))
    assert one.id != other.id and one.fact("clients") != other.fact("clients")


@pytest.mark.parametrize("schema", ["1", "99"])
def test_another_schema_is_refused_and_left_as_it_is(schema: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "l.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        connection.execute("INSERT INTO facts VALUES ('schema', ?)", (schema,))
    with pytest.raises(LedgerError, match=f"schema {schema}, not 2. Use the Sfumato that wrote it"):
        Ledger(tmp_path / "l.sqlite", "people")
    with closing(sqlite3.connect(tmp_path / "l.sqlite")) as connection:
        assert connection.execute("SELECT * FROM facts").fetchall() == [("schema", schema)]


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is not a database, and it is long enough to be looked at" * 20)
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(tmp_path / "text", "people")
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "nothing", None)


def test_rounds_add_up() -> None:
    ledger = Ledger(None, "people")
    for round in range(5):
        reserve(ledger, round)
    spent = ledger.spent(Unit.CLIENT)
    assert spent is not None
    assert spent.world == Repeated(POISSON, 5)
    assert ledger.spent(Unit.RECORD) is None


def test_mixed_relations_are_stated_under_replace() -> None:
    ledger = Ledger(None, "people")
    reserve(ledger, 0)
    fixed = FixedSizeSampled(0.2, GaussianEvent(0.7))
    reserve(ledger, 1, run="b", costs={Unit.CLIENT: Cost(Relation.REPLACE, fixed, None)})
    spent = ledger.spent(Unit.CLIENT)
    assert spent is not None
    assert spent.relation is Relation.REPLACE
    assert spent.world.events == (SWAPPED.world, fixed)  # type: ignore[attr-defined]


def test_relations_that_cannot_be_stated_under_replace_do_not_add_up() -> None:
    ledger = Ledger(None, "people")
    reserve(ledger, 0, costs={Unit.CLIENT: Cost(Relation.ADD_REMOVE, POISSON, None)})
    reserve(ledger, 1, run="b", costs={Unit.CLIENT: SWAPPED})
    assert ledger.spent(Unit.CLIENT) is None


def test_a_run_without_a_guarantee_makes_the_sum_infinite() -> None:
    ledger = Ledger(None, "people")
    reserve(ledger, 0)
    reserve(
        ledger,
        1,
        run="b",
        costs={Unit.CLIENT: Cost(Relation.ADD_REMOVE, NonPrivate("no noise"), NonPrivate("no noise"))},
    )
    spent = ledger.spent(Unit.CLIENT)
    assert spent is not None
    assert accountant("auto").epsilon(spent.world, 1e-5) == float("inf")


def test_the_common_budget_is_a_hard_stop(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite", "people")
    limit = accountant("auto").epsilon(Repeated(POISSON, 3), 1e-5)
    ledger.set_budget(Budget(limit * 1.0001, 1e-5))
    for round in range(3):
        reserve(ledger, round)
    with pytest.raises(BudgetExceeded, match="common budget"):
        reserve(ledger, 3, run="b")
    assert ledger.count == 3
    assert reserve(ledger, 2) == 3  # a replay is paid for
    with pytest.raises(BudgetExceeded, match="common budget"):
        ledger.check({Unit.CLIENT: Cost(Relation.ADD_REMOVE, POISSON, None)})
    ledger.set_budget(None)
    ledger.check({Unit.CLIENT: Cost(Relation.ADD_REMOVE, POISSON, None)})
    assert ledger.budget is None and ledger.count == 3
    assert reserve(ledger, 3, run="b") == 4


def test_how_far_a_run_has_got() -> None:
    ledger = Ledger(None, "people")
    assert ledger.last_of("a") is None
    for round, attempt, name in ((0, 0, "a"), (4, 1, "a"), (2, 3, "a"), (9, 9, "b")):
        reserve(ledger, round, attempt=attempt, run=name, key=f"{name}{round}")
    assert ledger.last_of("a") == (4, 3)


def test_promises_are_assumed_to_be_kept() -> None:
    ledger = Ledger(None, "people", "who they are")
    reserve(ledger, 0, run="promised")
    assert ledger.assumptions == ()
    reserve(ledger, 9, run=f"{PROMISE}a", key="another")
    (said,) = ledger.assumptions
    assert "promised (nobody checks)" in said


def test_two_processes_cannot_both_take_the_last_round(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    limit = accountant("auto").epsilon(Repeated(POISSON, 6), 1e-5) * 1.0001
    Ledger(path, "people").set_budget(Budget(limit, 1e-5))
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from sfumato.ledger.ledger import Ledger
from sfumato.account.event import *
from sfumato.ledger.spent import Cost
from sfumato.errors import BudgetExceeded
ledger = Ledger(Path({str(path)!r}), "people")
costs = {{Unit.CLIENT: Cost(Relation.ADD_REMOVE, PoissonSampled(0.1, GaussianEvent(1.0)), None)}}
for number in range(10):
    try:
        ledger.reserve(run=sys.argv[1], round=number, attempt=0, key=sys.argv[1] + str(number), inputs="x", costs=costs)
    except BudgetExceeded:
        break
"""
    processes = [subprocess.Popen([sys.executable, "-c", script, name]) for name in ("a", "b")]
    assert [process.wait(timeout=PATIENCE) for process in processes] == [0, 0]
    assert Ledger(path, "people").count == 6


def test_damage_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "l.sqlite"
    ledger = Ledger(path, "people")
    reserve(ledger, 0)
    assert run(["ledger", str(path), "--check"]) == 0
    assert "1 reservations, 1 never settled" in capsys.readouterr().out
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE spending SET costs = 'nonsense'")
    assert run(["ledger", str(path), "--check"]) == 2
    assert "reservation 1 cannot be read" in capsys.readouterr().err


def test_a_run_whose_rounds_differ_is_listed_with_each_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A private basis is paid before the rounds: 3 rounds were listed, all with its noise."""
    ledger = Ledger(tmp_path / "l.sqlite", "people")
    basis = {Unit.CLIENT: Cost(Relation.ADD_REMOVE, GaussianEvent(3.0), None)}
    for round in range(3):
        ledger.settle(reserve(ledger, round, **({} if round else {"costs": basis})))
    assert run(["ledger", str(tmp_path / "l.sqlite"), "--delta", "1e-5"]) == 0
    shown = capsys.readouterr().out
    assert f"3 rounds; 1 of them: {GaussianEvent(3.0).words()}; 2 of them: {POISSON.words()}; add/remove" in shown


def test_the_command_lists_exports_and_sets_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "l.sqlite"
    ledger = Ledger(path, "people")
    for round in range(4):
        ledger.settle(reserve(ledger, round))
    assert run(["ledger", str(path), "--budget", "9", "--delta", "1e-5"]) == 0
    shown = capsys.readouterr().out
    assert "population people: 4 rounds reserved" in shown
    assert "common budget: epsilon 9 at delta 1e-05" in shown
    assert run(["ledger", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = accountant("auto").epsilon(Repeated(POISSON, 4), 1e-5)
    assert found["spent"]["client"]["world"]["epsilon"] == pytest.approx(expected)
    assert found["spent"]["client"]["server"]["epsilon"] is None
    assert run(["ledger", str(path), "--export", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["reservations"][3]["round"] == 4


@pytest.mark.parametrize(
    "words", [["--budget", "-1", "--delta", "1e-5"], ["--budget", "1"], ["--delta", "0"], ["--delta", "nan"]]
)
def test_bad_numbers_get_one_sentence(tmp_path: Path, words: list[str]) -> None:
    Ledger(tmp_path / "l.sqlite", "people")
    assert run(["ledger", str(tmp_path / "l.sqlite"), *words]) == 2
