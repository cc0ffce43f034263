"""The ledger: never less than was spent, whoever writes and whatever crashes."""

from __future__ import annotations

import json
import shutil
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
from sfumato.account.event import (
    ByClient,
    FixedSizeSampled,
    GaussianEvent,
    NonPrivate,
    PoissonSampled,
    Relation,
    Repeated,
    Unit,
)
from sfumato.cli import run
from sfumato.engine.simulate import simulate
from sfumato.errors import BudgetExceeded, LedgerError
from sfumato.ledger.basis import PlanBasis
from sfumato.ledger.chain import SAID, link
from sfumato.ledger.ledger import PROMISE, Budget, Ledger
from sfumato.ledger.spent import Cost, Costs
from tests.helpers import dp_round, linear, made_up_population
from tests.patience import PATIENCE

POISSON = PoissonSampled(0.1, GaussianEvent(1.0))
SWAPPED = Cost(Relation.REPLACE, PoissonSampled(0.1, GaussianEvent(0.5), Relation.REPLACE), None)
COSTS = Costs({Unit.CLIENT: Cost(Relation.ADD_REMOVE, POISSON, None, SWAPPED)})


def reserve(ledger: Ledger, round: int, **changed: Any) -> int:
    return ledger.reserve(**{"run": "a", "round": round, "costs": COSTS, **changed})


def of_clients(cost: Cost) -> Costs:
    return Costs({Unit.CLIENT: cost})


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


def test_every_reservation_counts() -> None:
    """A round that is begun again is reserved again: its noise is another."""
    ledger = Ledger(None, "people")
    first = reserve(ledger, 0)
    assert reserve(ledger, 0) > first and ledger.count == ledger.rounds == ledger.count_of("a") == 2


def test_noise_that_a_seed_draws_again_is_counted_once() -> None:
    ledger = Ledger(None, "people")
    assert reserve(ledger, 0, name="noise") == reserve(ledger, 0, name="noise")
    assert ledger.count == 1 and ledger.holds("noise") and not ledger.holds("other")


@pytest.mark.parametrize("changed", [{"round": 1}, {"run": "b"}, {"costs": Costs({})}])
def test_noise_that_was_counted_for_anything_else_is_refused(changed: dict[str, Any]) -> None:
    ledger = Ledger(None, "people")
    reserve(ledger, 0, name="noise")
    with pytest.raises(LedgerError):
        reserve(ledger, **{"round": 0, "name": "noise", **changed})
    assert ledger.count == 1


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
    with pytest.raises(LedgerError, match=f"schema {schema}, not 3. Use the Sfumato that wrote it"):
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
    reserve(ledger, 1, run="b", costs=of_clients(Cost(Relation.REPLACE, fixed, None)))
    spent = ledger.spent(Unit.CLIENT)
    assert spent is not None
    assert spent.relation is Relation.REPLACE
    assert spent.world.events == (SWAPPED.world, fixed)  # type: ignore[attr-defined]


def test_relations_that_cannot_be_stated_under_replace_do_not_add_up() -> None:
    ledger = Ledger(None, "people")
    reserve(ledger, 0, costs=of_clients(Cost(Relation.ADD_REMOVE, POISSON, None)))
    reserve(ledger, 1, run="b", costs=of_clients(SWAPPED))
    assert ledger.spent(Unit.CLIENT) is None


def test_a_run_without_a_guarantee_makes_the_sum_infinite() -> None:
    ledger = Ledger(None, "people")
    reserve(ledger, 0)
    reserve(
        ledger,
        1,
        run="b",
        costs=of_clients(Cost(Relation.ADD_REMOVE, NonPrivate("no noise"), NonPrivate("no noise"))),
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
    with pytest.raises(BudgetExceeded):
        ledger.check(COSTS)
    ledger.set_budget(None)
    ledger.check(COSTS)
    assert ledger.budget is None and ledger.count == 3
    reserve(ledger, 3, run="b")
    assert ledger.count == 4


def test_how_far_a_run_has_got() -> None:
    ledger = Ledger(None, "people")
    assert ledger.last_of("a") is None
    for round, attempt, name in ((0, 0, "a"), (4, 1, "a"), (2, 3, "a"), (9, 9, "b")):
        reserve(ledger, round, attempt=attempt, run=name)
    assert ledger.last_of("a") == (4, 3)


def test_promises_are_assumed_to_be_kept() -> None:
    ledger = Ledger(None, "people", "who they are")
    ledger.begin(PlanBasis(((COSTS, 2),)))
    reserve(ledger, 0, run="promised")
    assert ledger.assumptions == ()
    reserve(ledger, 9, run=f"{PROMISE}a")
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
from sfumato.ledger.spent import Cost, Costs
from sfumato.errors import BudgetExceeded
ledger = Ledger(Path({str(path)!r}), "people")
costs = Costs({{Unit.CLIENT: Cost(Relation.ADD_REMOVE, PoissonSampled(0.1, GaussianEvent(1.0)), None)}})
for number in range(10):
    try:
        ledger.reserve(run=sys.argv[1], round=number, costs=costs)
    except BudgetExceeded:
        break
"""
    processes = [subprocess.Popen([sys.executable, "-c", script, name]) for name in ("a", "b")]
    assert [process.wait(timeout=PATIENCE) for process in processes] == [0, 0]
    assert Ledger(path, "people").count == 6 and not Ledger(path, None).damage()


CHANGES = {
    "a cost": "UPDATE costs SET written = replace(written, '0.1', '0.2')",
    "a cost that is gone": "DELETE FROM costs",
    "a round's number": "UPDATE entries SET round = 1 WHERE kind = 'reserve' AND round = 0",
    "a seed denied": "UPDATE entries SET seeded = 0 WHERE kind = 'reserve'",
    "a fact": "UPDATE entries SET value = 'others' WHERE name = 'population'",
    "an entry that is gone": "DELETE FROM entries WHERE number = (SELECT MIN(number) FROM entries WHERE kind = 'reserve')",
    "the last entry that is gone": "DELETE FROM entries WHERE number = (SELECT MAX(number) FROM entries WHERE kind = 'reserve')",
    "the counts": "UPDATE counts SET times = times - 1",
    "a settling": "UPDATE entries SET value = '[999]' WHERE kind = 'settle'",
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_changed_is_found(change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "l.sqlite"
    ledger = Ledger(path, "people")
    for round in range(3):
        ledger.settle("a", reserve(ledger, round, seeded=True))
    reserve(ledger, 3, seeded=True)
    assert run(["ledger", str(path), "--check"]) == 0
    assert ledger.head in capsys.readouterr().out
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(CHANGES[change]).rowcount > 0
    assert ledger.damage()
    assert run(["ledger", str(path), "--check"]) == 2
    assert str(path) in capsys.readouterr().err


def test_an_entry_is_bound_to_all_before_it(tmp_path: Path) -> None:
    """With the hash of one entry made again, the next one shows it; the head is another."""
    path = tmp_path / "l.sqlite"
    ledger = Ledger(path, "people")
    for round in range(3):
        reserve(ledger, round)
    head, columns = ledger.head, ", ".join(SAID)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE entries SET run = 'b' WHERE round = 0")
        number, *_ = said = connection.execute(f"SELECT {columns} FROM entries WHERE round = 0").fetchone()
        before = connection.execute("SELECT hash FROM entries WHERE number = ?", (number - 1,)).fetchone()[0]
        connection.execute("UPDATE entries SET hash = ? WHERE number = ?", (link(before, list(said)), number))
    assert f"entry {number + 1} " in "".join(ledger.damage())
    reserve(ledger, 3)
    assert ledger.head != head


def test_a_ledger_on_a_disk_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    """Nothing is written beside it either; sqlite would want to, where entries wait in the file beside it."""
    path = tmp_path / "disk" / "l.sqlite"
    path.parent.mkdir()
    ledger = Ledger(path, "people")
    reserve(ledger, 0)
    before = {one: (one.stat().st_mtime_ns, one.read_bytes()) for one in path.parent.iterdir()}
    assert Ledger(path, None).count == 1 and not Ledger(path, None).damage()
    assert {one: (one.stat().st_mtime_ns, one.read_bytes()) for one in path.parent.iterdir()} == before
    killed = tmp_path / "killed" / "l.sqlite"
    with ledger.connected():
        reserve(ledger, 1)
        shutil.copytree(path.parent, killed.parent)
    (killed.parent / "l.sqlite-shm").unlink()
    (killed.parent / "l.sqlite-shm").mkdir()  # even root cannot make that file now, as on a read-only disk
    assert Ledger(killed, None).count == 2


def test_a_ledger_of_an_older_version_is_read_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            """
            CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE spending (
                id INTEGER PRIMARY KEY, run TEXT NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
                key TEXT NOT NULL UNIQUE, inputs TEXT NOT NULL, costs TEXT NOT NULL, seeded INTEGER NOT NULL,
                settled INTEGER NOT NULL DEFAULT 0
            );
            """
        )
        facts = {
            "schema": "2",
            "id": "00" * 16,
            "population": "people",
            "clients": "unnamed",
            "budget": '[9.0, 1e-05, "client"]',
        }
        connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        for round in range(3):
            row = (round + 1, "old", round, 0, f"key {round}", "x", COSTS.text, 0, int(round < 2))
            connection.execute("INSERT INTO spending VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    old, content = Ledger(path, None), path.read_bytes()
    assert (old.count, old.rounds, old.count_of("old"), old.id) == (3, 3, 3, "00" * 16)
    assert [entry.settled for entry in old.entries()] == [True, True, False] and not old.damage()
    assert old.budget == Budget(9.0, 1e-5) and old.fact("run") == "old"
    spent = old.spent(Unit.CLIENT)
    assert spent is not None and spent.world == Repeated(POISSON, 3)
    assert path.read_bytes() == content, "reading changes nothing"
    again = Ledger(path, "people")
    reserve(again, 3)
    assert again.count == Ledger(path, None).count == 4 and not again.damage()
    assert path.read_bytes() != content and again.fact("migrated_from") == "2"


def test_counts_take_no_longer_with_more_rounds() -> None:
    """By the number of rows that sqlite steps over, which no other work on the machine changes."""

    def steps(rounds: int) -> int:
        ledger, counted = Ledger(None, "people"), [0]
        for round in range(rounds):
            reserve(ledger, round)
        with ledger.connected() as connection:
            connection.set_progress_handler(lambda: counted.__setitem__(0, counted[0] + 1), 1)
            reserve(ledger, rounds)
            ledger.settle("a", rounds)
            assert (ledger.count, ledger.rounds, ledger.count_of("a")) == (rounds + 1,) * 3
            ledger.spent(Unit.CLIENT)
            connection.set_progress_handler(None, 1)
        return counted[0]

    few, many = steps(20), steps(2000)
    assert 0 < many < 1.2 * few


def test_a_cost_is_written_once(tmp_path: Path) -> None:
    groups = tuple(((client,), GaussianEvent(1.0 + client)) for client in range(1000))
    costs = of_clients(Cost(Relation.ADD_REMOVE, ByClient(GaussianEvent(1.0), groups), None))
    ledger = Ledger(tmp_path / "l.sqlite", "people")
    reserve(ledger, 0, costs=costs)
    size = (tmp_path / "l.sqlite").stat().st_size
    for round in range(1, 100):
        reserve(ledger, round, costs=costs)
    assert len(costs.text) > 50_000 and (tmp_path / "l.sqlite").stat().st_size - size < 100 * 1000


def test_a_run_whose_rounds_differ_is_listed_with_each_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A private basis is paid before the rounds: 3 rounds were listed, all with its noise."""
    ledger = Ledger(tmp_path / "l.sqlite", "people")
    basis = of_clients(Cost(Relation.ADD_REMOVE, GaussianEvent(3.0), None))
    for round in range(3):
        ledger.settle("a", reserve(ledger, round, **({} if round else {"costs": basis})))
    assert run(["ledger", str(tmp_path / "l.sqlite"), "--delta", "1e-5"]) == 0
    shown = capsys.readouterr().out
    assert f"3 rounds; 1 of them: {GaussianEvent(3.0).words()}; 2 of them: {POISSON.words()}; add/remove" in shown


def test_the_command_lists_exports_and_sets_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "l.sqlite"
    ledger = Ledger(path, "people")
    for round in range(4):
        ledger.settle("a", reserve(ledger, round))
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


def test_a_ledger_that_was_cut_is_found_by_the_head_in_run_json(tmp_path: Path) -> None:
    """Cut at its end it is a whole chain by itself."""
    folder = tmp_path / "run"
    words = ["train", "--rounds", "3", "--clients", "40", "--noise-multiplier", "3", "--quiet", "--out", str(folder)]
    assert run(words) == 0
    assert run(["ledger", str(folder), "--check"]) == 0
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection, connection:
        connection.execute("DELETE FROM entries WHERE kind = 'settle' AND number = (SELECT MAX(number) FROM entries)")
    assert Ledger(folder / "ledger.sqlite", None).damage() == []
    assert run(["ledger", str(folder), "--check"]) == 2
