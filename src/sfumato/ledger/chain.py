"""The entries of a ledger: a hash chain. No entry is changed or taken away; what is new is added at the end.

An entry is a reservation, the settling of reservations, or a fact about the ledger (the last one of a name holds). Its hash is
the SHA-256 digest of the hash before it and of all that the entry says. So the last hash, the `head`, stands for all entries in
their order. `costs` holds each cost once, under its digest. `counts` is derived from the entries, so that nothing that is
needed in every round takes longer the more rounds there are. `state` is what a run continues from, and no part of the chain.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from sfumato.ledger.spent import Costs, digest_of

SCHEMA = 3
FACT, RESERVE, SETTLE = "fact", "reserve", "settle"  # kinds of entries
TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, run TEXT, round INTEGER, attempt INTEGER, seeded INTEGER, cost TEXT,
    name TEXT, value TEXT, hash TEXT NOT NULL, signature TEXT
);
CREATE INDEX IF NOT EXISTS facts ON entries (name, number) WHERE kind = 'fact';
CREATE UNIQUE INDEX IF NOT EXISTS named ON entries (name) WHERE kind = 'reserve' AND name IS NOT NULL;
CREATE INDEX IF NOT EXISTS reserved ON entries (run, round) WHERE kind = 'reserve';
CREATE TABLE IF NOT EXISTS costs (digest TEXT PRIMARY KEY, written TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS counts (
    run TEXT NOT NULL, cost TEXT NOT NULL, step INTEGER NOT NULL, seeded INTEGER NOT NULL, first INTEGER NOT NULL,
    times INTEGER NOT NULL, PRIMARY KEY (run, cost, step, seeded)
);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, content BLOB NOT NULL);
"""
SAID = (
    "number",
    "kind",
    "run",
    "round",
    "attempt",
    "seeded",
    "cost",
    "name",
    "value",
)  # what the hash of an entry covers
COUNTED = """
SELECT run, cost, round < 0, seeded, MIN(number), COUNT(*) FROM entries WHERE kind = 'reserve'
GROUP BY run, cost, round < 0, seeded
"""


@dataclass(frozen=True)
class Chain:
    """What is written at the end of a ledger's entries, within a transaction of the connection."""

    connection: sqlite3.Connection

    def last(self) -> tuple[int, str]:
        """Number and hash of the last entry."""
        row = self.connection.execute("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        return (0, "") if row is None else (int(row[0]), str(row[1]))

    def append(self, kind: str, **said: Any) -> int:
        """Add an entry; its number."""
        number, before = self.last()
        entry = {**dict.fromkeys(SAID), **said, "kind": kind, "number": number + 1}
        values = [entry[column] for column in SAID]
        self.connection.execute(
            f"INSERT INTO entries ({', '.join(SAID)}, hash) VALUES ({', '.join('?' * len(SAID))}, ?)",
            (*values, link(before, values)),
        )
        return number + 1

    def reserve(self, *, run: str, round: int, attempt: int, seeded: bool, costs: Costs, name: str | None) -> int:
        """Add a reservation, its cost if that is new, and count it."""
        self.connection.execute("INSERT OR IGNORE INTO costs VALUES (?, ?)", (costs.digest, costs.text))
        said = {"run": run, "round": round, "attempt": attempt, "seeded": int(seeded)}
        number = self.append(RESERVE, **said, cost=costs.digest, name=name)
        self.connection.execute(
            "INSERT INTO counts VALUES (?, ?, ?, ?, ?, 1) "
            "ON CONFLICT (run, cost, step, seeded) DO UPDATE SET times = times + 1",
            (run, costs.digest, int(round < 0), int(seeded), number),
        )
        return number


def link(before: str, said: list[Any]) -> str:
    """The hash of an entry: of the hash before it, and of all that it says, as JSON without spaces.

    >>> link("", [1, "fact", None, None, None, None, None, "schema", "3"])[:16]
    '03dcdae000916928'
    """
    return digest_of(before + json.dumps(said, separators=(",", ":")))
