"""Ledgers that the page may read: each run's own, and shared ones that the user has named or that lie among the runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sfumato.errors import BadValue, DataError, LedgerError
from sfumato.guarantee import check_delta, rounded_up
from sfumato.ledger.file import connect, schema_of
from sfumato.ledger.ledger import Ledger
from sfumato.report import ledgers as words
from sfumato.report.read import distinct_names
from sfumato.ui.folder import LEDGER, Runs, check_own


def every(runs: Runs) -> dict[str, Path]:
    """All ledgers by the name that the page knows them by."""
    among = (path for path in sorted(runs.root.glob("*.sqlite")) if path not in runs.ledgers and _is_ledger(path))
    shared = list(dict.fromkeys((*runs.ledgers, *among)))
    names = distinct_names(shared) if shared else []
    own = {name: path / LEDGER for name, path in runs.all().items() if (path / LEDGER).exists()}
    return {**{f"shared: {name}": path for name, path in zip(names, shared, strict=True)}, **own}


def contents(runs: Runs, name: str, delta: float | None) -> dict[str, Any]:
    """What was spent, by which runs, what that proves and what is left."""
    path = every(runs).get(name)
    if path is None:
        raise DataError(f"there is no ledger {name!r} here.")
    if path.parent != runs.root and path not in runs.ledgers:
        runs.find(name)
    if path not in runs.ledgers:
        check_own(path)
    book = Ledger(path, None)
    with book.connected(to_write=False):
        if damage := book.damage():
            raise LedgerError(f"{path.name} is damaged: " + "; ".join(damage))
        at = check_delta(_own_delta(book) if delta is None else delta)
        return {
            "name": name,
            "population": book.fact("population"),
            "reserved": book.count,
            "unsettled": sum(not entry.settled for entry in book.entries()),
            "delta": at,
            "delta_said": rounded_up(at, 3),
            "guarantees": [one.to_json() for one in words.merged(words.guarantees(book, at))],
            "runs": words.runs_in_words(book),
            "notes": words.notes(book),
            "budget": words.budget_in_words(book),
            "own_budgets": words.own_budgets_in_words(book),
            "shared": "" if book.shared is None else str(book.shared[0]),
        }


def _own_delta(book: Ledger) -> float:
    try:
        return words.reading_delta(book)
    except BadValue:
        raise BadValue(
            "this ledger has no budget and is no run's own: say at which delta to read epsilon, e.g. 1e-5."
        ) from None


def _is_ledger(path: Path) -> bool:
    """Whether a file is a ledger, found out without writing to it."""
    try:
        check_own(path)
        with closing(connect(path, to_write=False)) as book:
            return schema_of(book) is not None
    except (sqlite3.Error, DataError):
        return False
