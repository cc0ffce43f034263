"""Rewrites a ledger of versions 0.1 and 0.2 (schema 2: one row a reservation, changed when it was settled) as entries."""

from __future__ import annotations

import json
import sqlite3

from sfumato.ledger.chain import FACT, SCHEMA, SETTLE, TABLES, Chain
from sfumato.ledger.file import schema_of
from sfumato.ledger.spent import Costs


def migrate(connection: sqlite3.Connection) -> None:
    """All of it or nothing, unless another process has done it. Reservations keep their order, and settled ones stay settled; what
    they cost is not changed.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        if schema_of(connection) != "2":
            connection.execute("ROLLBACK")
            return
        facts = connection.execute("SELECT name, value FROM facts WHERE name <> 'schema' ORDER BY rowid").fetchall()
        columns = "id, run, round, attempt, key, costs, seeded, settled"
        rows = connection.execute(f"SELECT {columns} FROM spending ORDER BY id").fetchall()
        for statement in ("DROP TABLE facts", "DROP TABLE spending", *filter(str.strip, TABLES.split(";"))):
            connection.execute(statement)
        chain = Chain(connection)
        chain.append(FACT, name="schema", value=str(SCHEMA))
        runs = {run for _, run, *_ in rows}
        for name, value in (*facts, ("migrated_from", "2"), *(("run", run) for run in runs if len(runs) == 1)):
            chain.append(FACT, name=name, value=value)
        settled: dict[str, list[int]] = {}
        for _, run, round, attempt, key, written, seeded, is_settled in rows:
            costs = Costs.read(written)
            number = chain.reserve(run=run, round=round, attempt=attempt, seeded=bool(seeded), costs=costs, name=key)
            if is_settled:
                settled.setdefault(run, []).append(number)
        for run, numbers in settled.items():
            chain.append(SETTLE, run=run, value=json.dumps(numbers))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
