"""What a node was asked, and when: so that it can say how often is too often, and that a run's name stands for one run only."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sfumato.federation.node.books import private_file

_DAY = 24 * 60 * 60.0
_TABLES = """
CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, terms TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS asked (key TEXT PRIMARY KEY, run TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (session TEXT PRIMARY KEY);
"""


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait for whoever else answers in the same folder, in this process or another: what was counted stays so until it is noted.

    Where the system has no such locks, there is none.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / "answering.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        with suppress(ImportError, OSError):  # Windows, or a file system without locks
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Journal:
    """A small file beside the ledger. Only questions that the node set out to answer are in it, each once."""

    connection: sqlite3.Connection

    @staticmethod
    @contextmanager
    def opened(path: Path) -> Iterator[Journal]:
        private_file(path)
        connection = sqlite3.connect(path, timeout=60.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript(_TABLES)
            yield Journal(connection)
        finally:
            connection.close()

    def terms_of(self, run: str) -> str | None:
        """The terms under which a run was first answered."""
        row = self.connection.execute("SELECT terms FROM runs WHERE run = ?", (run,)).fetchone()
        return None if row is None else str(row[0])

    def holds(self, key: str) -> bool:
        return self.connection.execute("SELECT 1 FROM asked WHERE key = ?", (key,)).fetchone() is not None

    def of_run(self, run: str) -> int:
        """How many different questions of a run there were."""
        return int(self.connection.execute("SELECT COUNT(*) FROM asked WHERE run = ?", (run,)).fetchone()[0])

    def within_a_day(self, now: float) -> int:
        """How many different questions there were in the day before now, of all runs."""
        return int(self.connection.execute("SELECT COUNT(*) FROM asked WHERE at > ?", (now - _DAY,)).fetchone()[0])

    def begins(self, session: bytes) -> bool:
        """Whether a session of a secure sum is new; it is not new again."""
        added = self.connection.execute("INSERT OR IGNORE INTO sessions VALUES (?)", (session.hex(),))
        return added.rowcount == 1

    def note_run(self, run: str, terms: str) -> None:
        """Note the terms of a run, if it is new."""
        self.connection.execute("INSERT OR IGNORE INTO runs VALUES (?, ?)", (run, terms))

    def note(self, run: str, key: str, at: float) -> None:
        """Note a question, if it is new."""
        self.connection.execute("INSERT OR IGNORE INTO asked VALUES (?, ?, ?)", (key, run, at))
