"""An append-only record of what was spent, on disk before anything is shown.

The order is: reserve (committed), compute, checkpoint, settle, show. A reservation counts from the moment it is committed,
settled or not, so a crash can only make the ledger say more than was spent, never less. Replaying a round with the same key
on the same inputs finds its reservation and pays nothing new; the same key on other inputs is refused, because the
difference of the two outputs would hold no noise at all.

Each run has a ledger of its own. A shared one adds up all runs on one population, in any number of processes: its budget is
checked in the same transaction that reserves, so two runs cannot both take the last of it.

What is added up must have been spent on the same clients. So a ledger keeps a digest of who they are, keyed with a random id
of its own: other clients under the same name are refused, and nothing that is printed of it tests a guess at their names.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.account.event import Event, Unit, named, why_not_private
from sfumato.account.inside import for_clients
from sfumato.account.protocol import accountant
from sfumato.errors import BudgetExceeded, LedgerError
from sfumato.ledger.spent import Cost, total

SCHEMA = 2
UNNAMED = "unnamed"  # clients of whom nobody said who they are
PROMISE = "promise:"  # begins the name of a run of which its owner knows only what a server has promised
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS spending (
    id INTEGER PRIMARY KEY, run TEXT NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL, key TEXT NOT NULL UNIQUE,
    inputs TEXT NOT NULL, costs TEXT NOT NULL, seeded INTEGER NOT NULL, settled INTEGER NOT NULL DEFAULT 0
);
"""


@dataclass(frozen=True)
class Entry:
    """One reservation. Rounds are counted from 0; a step that the run took before the first of them is round -1."""

    id: int
    run: str
    round: int
    attempt: int
    seeded: bool
    settled: bool
    costs: dict[Unit, Cost]


@dataclass(frozen=True)
class Budget:
    """The most that may be spent on each unit, against anyone who sees the released models.

    It is that of some `clients`, or that of all `but` some; without either it is common to all.
    """

    epsilon: float
    delta: float
    unit: Unit = Unit.CLIENT
    clients: tuple[int, ...] | None = None
    but: tuple[int, ...] = ()

    def spent(self, event: Event, paying: Event | None = None) -> float:
        """What has been spent of it, by the one of its clients that pays most; of those whom `paying` costs something."""
        price, every = accountant("auto"), for_clients(event, self.clients, self.but, paying)
        return max((price.epsilon(own, self.delta) for own in every), default=0.0)

    @property
    def whose(self) -> str:
        """Its clients in words; empty if it is common to all."""
        if self.clients is not None:
            return f" of {named(self.clients)}"
        return " of all clients without a budget of their own" if self.but else ""


class Ledger:
    """A ledger in a file, or in memory if there is no path. Without `population` an existing file is opened to read.

    `clients` is the identity of the population's clients; None if it has none. A file is open only while something is read or
    written, or inside of `connected`, so there is nothing to close.
    """

    def __init__(self, path: Path | None, population: str | None, clients: str | None = None) -> None:
        self.path, self._lock, self._uses = path, threading.Lock(), 0
        if population is None and (path is None or not path.exists()):
            raise LedgerError(
                f"there is no ledger {path}. Give the file that --ledger named, or a run's ledger.sqlite."
            )
        if path is None:  # in memory it is there for as long as the ledger is
            self._connection, self._uses = _connection(":memory:"), 1
            weakref.finalize(self, self._connection.close)
        try:
            if path is not None and population is not None:
                with closing(_connection(_uri(path, "rwc"))) as connection:
                    connection.execute("PRAGMA journal_mode=WAL")
            with self.connected() as connection:
                self._begin(connection, population, clients)
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{path} is not a ledger, or it is damaged: {error}.") from error

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """One connection for whatever is done inside, and inside of that: opening one costs as much as writing does.

        It changes nothing of what is on disk, or when: each transaction is there as soon as it ends.
        """
        with self._lock:
            if not self._uses:
                self._connection = self._connect()
            self._uses += 1
        try:
            yield self._connection
        finally:
            with self._lock:
                self._uses -= 1
                if not self._uses:
                    self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        assert self.path is not None, "in memory there is one already"
        try:
            return _connection(_uri(self.path, "rw"))  # a file that is gone is not made anew
        except sqlite3.OperationalError as error:
            raise LedgerError(
                f"{self.path} cannot be opened: {error}. Put it back where it was, or correct its permissions."
            ) from error

    def _begin(self, connection: sqlite3.Connection, population: str | None, clients: str | None) -> None:
        if population is not None:
            connection.executescript(_TABLES)
            self._set_fact("schema", str(SCHEMA), "IGNORE")
        if self.fact("schema") != str(SCHEMA):
            raise LedgerError(
                f"{self.path} has schema {self.fact('schema')}, not {SCHEMA}. Use the Sfumato that wrote it, or another file."
            )
        if population is not None:
            self._set_fact("id", os.urandom(16).hex(), "IGNORE")
            self._belong(population, UNNAMED if clients is None else self._keyed(clients))

    def _keyed(self, clients: str) -> str:
        return hashlib.blake2b(clients.encode(), key=bytes.fromhex(self.id), digest_size=16).hexdigest()

    def _belong(self, population: str, clients: str) -> None:
        """Refuse to add up what was spent on others."""
        self._set_fact("population", population, "IGNORE")
        self._set_fact("clients", clients, "IGNORE")
        if self.fact("population") != population:
            raise LedgerError(
                f"{self.path} belongs to the population {self.fact('population')!r}, not {population!r}. Use another file."
            )
        if (known := self.fact("clients")) != clients:
            raise LedgerError(
                f"{self.path} belongs to the clients {str(known)[:8]} of {population!r}, and this run's clients of that name are "
                f"{clients[:8]}: another split, seed or number of clients, other file names, or other ids. What is spent on one "
                "does not add up with what is spent on the other. Give what the runs before had (--split-seed, --clients, ids=), "
                "or another file."
            )

    @property
    def id(self) -> str:
        """What tells this ledger from any other, wherever its file lies."""
        return str(self.fact("id"))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold for everything in it to add up, and what nobody checks."""
        found = []
        if self.fact("clients") == UNNAMED:
            found.append(
                "all runs in the ledger have the same clients under the same numbers (no ids were given, so nobody checks)"
            )
        if self._row("SELECT 1 FROM spending WHERE run LIKE ?", f"{PROMISE}%") is not None:
            found.append(
                "servers have drawn cohorts in secret, added the noise and begun no more rounds than they promised (nobody checks)"
            )
        if self.fact("trusting") is not None:
            found.append(
                "servers have followed the protocol of their secure sums, and have played none of the other clients (nobody checks)"
            )
        return tuple(found)

    def note_trusting(self) -> None:
        """Note that some of it holds of a server that follows the protocol of a secure sum, and of no other."""
        self._set_fact("trusting", "yes")

    @property
    def other_numbers(self) -> bool:
        """Whether its clients are known by numbers that do not count them from 0, as the ledger does."""
        return self.fact("other_numbers") is not None

    def note_other_numbers(self) -> None:
        """Note that they are; who has which is not kept."""
        self._set_fact("other_numbers", "yes")

    @property
    def durable(self) -> bool:
        """Whether it survives this process."""
        return self.path is not None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self.connected() as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:  # sqlite ends it by itself where the disk is full
                        connection.execute("ROLLBACK")
                    raise
        except sqlite3.OperationalError as error:
            raise LedgerError(
                f"{self.path} cannot be written: {error}. Nothing is drawn that it does not hold. Make room on its disk, or mend "
                "its permissions, and go on."
            ) from error

    def fact(self, name: str) -> str | None:
        """A public fact about the ledger."""
        row = self._row("SELECT value FROM facts WHERE name = ?", name)
        return None if row is None else str(row[0])

    def _set_fact(self, name: str, value: str, otherwise: str = "REPLACE") -> None:
        with self._writing() as connection:
            connection.execute(f"INSERT OR {otherwise} INTO facts VALUES (?, ?)", (name, value))

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self.connected() as connection:
            return connection.execute(query, values).fetchall()

    def _row(self, query: str, *values: object) -> Any:
        return next(iter(self._rows(query, *values)), None)

    @property
    def shared(self) -> tuple[Path, str] | None:
        """Where the ledger lies that its run shares with others, and that ledger's id."""
        found = self.fact("shared")
        if found is None:
            return None
        path, name = json.loads(found)
        return Path(path), str(name)

    def remember_shared(self, shared: Ledger) -> None:
        """Note the shared ledger, and where it lies now; committed before its run spends anything."""
        assert shared.path is not None, "a ledger in memory is not shared"
        self._set_fact("shared", json.dumps([str(shared.path.absolute()), shared.id]))

    @property
    def budget(self) -> Budget | None:
        """The common budget, if one was set."""
        found = self.fact("budget")
        if found is None:
            return None
        epsilon, delta, unit = json.loads(found)
        return Budget(epsilon, delta, Unit(unit))

    def set_budget(self, budget: Budget | None) -> None:
        """Set the common budget, or take it away; it holds for every later reservation."""
        if budget is not None:
            self._set_fact("budget", json.dumps([budget.epsilon, budget.delta, budget.unit]))
        elif self.fact("budget") is not None:
            with self._writing() as connection:
                connection.execute("DELETE FROM facts WHERE name = 'budget'")

    @property
    def own_budgets(self) -> tuple[Budget, ...]:
        """The budgets that clients have for themselves, all runs together: each is a line of this ledger."""
        found = json.loads(self.fact("own_budgets") or "[]")
        return tuple(
            Budget(epsilon, delta, Unit(unit), None if clients is None else tuple(clients), tuple(but))
            for epsilon, delta, unit, clients, but in found
        )

    def set_own_budgets(self, budgets: Iterable[Budget]) -> None:
        """Set clients' own budgets; they hold for every later reservation."""
        written = [[one.epsilon, one.delta, one.unit, one.clients, one.but] for one in budgets]
        self._set_fact("own_budgets", json.dumps(written))

    def reserve(
        self,
        *,
        run: str,
        round: int,
        attempt: int,
        key: str,
        inputs: str,
        costs: Mapping[Unit, Cost],
        seeded: bool = False,
    ) -> int:
        """Commit a round's cost before it is computed; the number of the reservation, old or new."""
        written = json.dumps({str(unit): cost.to_json() for unit, cost in costs.items()}, sort_keys=True)
        with self._writing() as connection:
            row = self._row("SELECT id, run, round, inputs, costs FROM spending WHERE key = ?", key)
            if row is not None:
                if row[1:] != (run, round, inputs, written):
                    raise LedgerError(
                        f"round {round + 1}: this noise was already drawn for another run, round or data, and using it twice "
                        "would cancel it. Start a new run, with a secret of its own."
                    )
                return int(row[0])
            self.check(costs)
            cursor = connection.execute(
                "INSERT INTO spending (run, round, attempt, key, inputs, costs, seeded) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run, round, attempt, key, inputs, written, int(seeded)),
            )
            return int(cursor.lastrowid or 0)

    def check(self, costs: Mapping[Unit, Cost]) -> None:
        """Refuse what a budget does not suffice for, and write nothing; `reserve` does so in the transaction that it writes in."""
        common = () if self.budget is None else (self.budget,)
        for budget in (*common, *self.own_budgets):
            after = total([*self._counted(), (costs, 1)], budget.unit)
            if after is None or why_not_private(after.world) is not None:
                raise BudgetExceeded(
                    f"{self.path} has a budget for each {budget.unit}, but nothing is proven for {budget.unit}s in this round or "
                    "in an earlier one. Use another ledger."
                )
            epsilon = budget.spent(after.world, costs[budget.unit].world)  # a client that has stopped holds up nobody
            if epsilon > budget.epsilon:
                raise BudgetExceeded(
                    f"the next round would bring all runs in {self.path} to epsilon {epsilon:.4g}, over their common budget"
                    f"{budget.whose} of {budget.epsilon:g} at delta {budget.delta:g}. The run stops here."
                )

    def settle(self, *reservations: int) -> None:
        """Say that the output of rounds is stored."""
        with self._writing() as connection:
            connection.executemany(
                "UPDATE spending SET settled = 1 WHERE id = ?", [(reservation,) for reservation in reservations]
            )

    def holds(self, key: str) -> bool:
        """Whether a round with this key was reserved before."""
        return self._row("SELECT 1 FROM spending WHERE key = ?", key) is not None

    def after(self, round: int) -> list[tuple[int, str]]:
        """Attempt and inputs of every reservation from `round` on."""
        rows = self._rows("SELECT attempt, inputs FROM spending WHERE round >= ?", round)
        return [(int(attempt), str(inputs)) for attempt, inputs in rows]

    def count_of(self, run: str) -> int:
        """How many reservations a run has."""
        return int(self._row("SELECT COUNT(*) FROM spending WHERE run = ?", run)[0])

    def last_of(self, run: str) -> tuple[int, int] | None:
        """The highest round, and the highest attempt, that a run has reserved."""
        round, attempt = self._row("SELECT MAX(round), MAX(attempt) FROM spending WHERE run = ?", run)
        return None if round is None else (int(round), int(attempt))

    @property
    def inputs_changed(self) -> bool:
        """Whether rounds were drawn on inputs that were not the same, or may have been others."""
        return bool(self._row("SELECT COUNT(DISTINCT inputs) > 1 FROM spending")[0])

    @property
    def seeded(self) -> bool:
        """Whether any noise in it came from a seed."""
        return self._row("SELECT 1 FROM spending WHERE seeded") is not None

    @property
    def count(self) -> int:
        """How many reservations there are."""
        return int(self._row("SELECT COUNT(*) FROM spending")[0])

    @property
    def rounds(self) -> int:
        """How many of them are of rounds, and not of a step that its run took before the first."""
        return int(self._row("SELECT COUNT(*) FROM spending WHERE round >= 0")[0])

    def entries(self) -> list[Entry]:
        """All reservations, in order."""
        rows = self._rows("SELECT id, run, round, attempt, seeded, settled, costs FROM spending ORDER BY id")
        return [
            Entry(number, run, round, attempt, bool(seeded), bool(settled), _costs(written))
            for number, run, round, attempt, seeded, settled, written in rows
        ]

    def _counted(self) -> list[tuple[dict[Unit, Cost], int]]:
        rows = self._rows("SELECT costs, COUNT(*) FROM spending GROUP BY costs ORDER BY MIN(id)")
        return [(_costs(written), int(times)) for written, times in rows]

    def spent(self, unit: Unit) -> Cost | None:
        """Everything spent so far on one unit, as one event per view; None if nothing is recorded or not all is proven."""
        return total(self._counted(), unit)

    def damage(self) -> list[str]:
        """What is wrong with the file, in sentences."""
        found = [str(row[0]) for row in self._rows("PRAGMA integrity_check") if row[0] != "ok"]
        for number, written in self._rows("SELECT id, costs FROM spending ORDER BY id"):
            try:
                _costs(written)
            except Exception as error:
                found.append(f"reservation {number} cannot be read: {error}")
        return found


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"


def _connection(place: str) -> sqlite3.Connection:
    connection = sqlite3.connect(place, timeout=60.0, isolation_level=None, check_same_thread=False, uri=True)
    try:
        connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _costs(written: str) -> dict[Unit, Cost]:
    return {Unit(unit): Cost.from_json(cost) for unit, cost in json.loads(written).items()}
