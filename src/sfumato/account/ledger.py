"""An append-only record of what was spent, on disk before anything is shown.

The order is: reserve (committed), compute, checkpoint, settle, show. A reservation counts from the moment it is committed,
settled or not, so a crash can only make the ledger say more than was spent, never less. Replaying a round with the same key
on the same inputs finds its reservation and pays nothing new; the same key on other inputs is refused, because the
difference of the two outputs would hold no noise at all.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.account.event import Event, Relation, Unit, compose, from_json
from sfumato.errors import LedgerError

SCHEMA = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS spending (
    id INTEGER PRIMARY KEY, run TEXT NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL, key TEXT NOT NULL UNIQUE,
    inputs TEXT NOT NULL, costs TEXT NOT NULL, settled INTEGER NOT NULL DEFAULT 0
);
"""


@dataclass(frozen=True)
class Cost:
    """What one round costs one unit, under its relation, in each view; None: nothing is proven there."""

    relation: Relation
    world: Event
    server: Event | None

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        server = None if self.server is None else self.server.to_json()
        return {"relation": str(self.relation), "world": self.world.to_json(), "server": server}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Cost:
        """What `to_json` wrote."""
        server = None if value["server"] is None else from_json(value["server"])
        return Cost(Relation(value["relation"]), from_json(value["world"]), server)


@dataclass(frozen=True)
class Entry:
    """One reservation."""

    id: int
    run: str
    round: int
    attempt: int
    settled: bool
    costs: dict[Unit, Cost]


class Ledger:
    """A ledger in a file, or in memory if there is no path."""

    def __init__(self, path: Path | None, population: str) -> None:
        self.path = path
        self._connection = sqlite3.connect(":memory:" if path is None else path, timeout=60.0, isolation_level=None)
        if path is not None:
            self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_TABLES)
        self._fact(
            "schema", str(SCHEMA), f"{path} was written by a newer version of Sfumato. Update Sfumato to use it."
        )
        self._fact(
            "population", population, f"{path} belongs to another population than {population!r}. Use another file."
        )

    @property
    def durable(self) -> bool:
        """Whether it survives this process."""
        return self.path is not None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _fact(self, name: str, value: str, complaint: str) -> None:
        with self._writing():
            self._connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
        (found,) = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        if found != value:
            raise LedgerError(complaint)

    def reserve(self, *, run: str, round: int, attempt: int, key: str, inputs: str, costs: Mapping[Unit, Cost]) -> int:
        """Commit a round's cost before it is computed; the number of the reservation, old or new."""
        written = json.dumps({str(unit): cost.to_json() for unit, cost in costs.items()}, sort_keys=True)
        with self._writing():
            found = self._connection.execute("SELECT id, run, round, inputs, costs FROM spending WHERE key = ?", (key,))
            row = found.fetchone()
            if row is not None:
                if row[1:] != (run, round, inputs, written):
                    raise LedgerError(
                        f"round {round}: this noise was already drawn for another run, round or data, and using it twice would "
                        "cancel it. Start a new run, with a secret of its own."
                    )
                return int(row[0])
            cursor = self._connection.execute(
                "INSERT INTO spending (run, round, attempt, key, inputs, costs) VALUES (?, ?, ?, ?, ?, ?)",
                (run, round, attempt, key, inputs, written),
            )
            return int(cursor.lastrowid or 0)

    def holds(self, key: str) -> bool:
        """Whether a round with this key was reserved before."""
        return self._connection.execute("SELECT 1 FROM spending WHERE key = ?", (key,)).fetchone() is not None

    def after(self, round: int) -> list[tuple[int, str]]:
        """Attempt and inputs of every reservation from `round` on."""
        rows = self._connection.execute("SELECT attempt, inputs FROM spending WHERE round >= ?", (round,))
        return [(int(attempt), str(inputs)) for attempt, inputs in rows]

    def settle(self, reservation: int) -> None:
        """Say that a round's output is stored."""
        with self._writing():
            self._connection.execute("UPDATE spending SET settled = 1 WHERE id = ?", (reservation,))

    def entries(self) -> list[Entry]:
        """All reservations, in order."""
        rows = self._connection.execute("SELECT id, run, round, attempt, settled, costs FROM spending ORDER BY id")
        return [
            Entry(number, run, round, attempt, bool(settled), _costs(costs))
            for number, run, round, attempt, settled, costs in rows
        ]

    def spent(self, unit: Unit) -> Cost | None:
        """Everything spent so far on one unit, as one event per view; None if nothing is recorded for it."""
        counted = self._connection.execute(
            "SELECT costs, COUNT(*) FROM spending GROUP BY costs ORDER BY MIN(id)"
        ).fetchall()
        costs = [(_costs(written).get(unit), times) for written, times in counted]
        known = [(cost, times) for cost, times in costs if cost is not None]
        if not known or len(known) < len(costs):
            return None
        relations = {cost.relation for cost, _ in known}
        if len(relations) > 1:
            raise LedgerError(f"{self.path} holds several relations for one {unit}, which do not add up.")
        worlds = [event for cost, times in known for event in [cost.world] * times]
        servers = [cost.server for cost, times in known for _ in range(times)]
        server = None if any(event is None for event in servers) else compose(*(event for event in servers if event))
        return Cost(relations.pop(), compose(*worlds), server)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _costs(written: str) -> dict[Unit, Cost]:
    return {Unit(unit): Cost.from_json(cost) for unit, cost in json.loads(written).items()}
