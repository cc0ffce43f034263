"""How the file of a ledger is opened: to write, or to read without writing anything, not even beside it."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path


def connect(path: Path | None, to_write: bool = True) -> sqlite3.Connection:
    """A connection to a file that is there, or to memory without one. Each transaction is on disk when it ends."""
    if path is None:
        return _connected(":memory:")
    return _connected(_uri(path, "rw")) if to_write else _to_read(path)


def make(path: Path) -> None:
    """Make a file, if it is not there, in which transactions wait beside it until they are written into it."""
    with closing(_connected(_uri(path, "rwc"))) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def is_empty(path: Path) -> bool:
    """Whether there is no such file, or nothing in it: whoever made it was killed before its first transaction."""
    if not path.exists():
        return True
    try:
        with closing(connect(path, to_write=False)) as connection:
            return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
    except sqlite3.DatabaseError:  # damaged, which whoever opens it says
        return False


def _to_read(path: Path) -> sqlite3.Connection:
    """What others are writing is read beside them; where nothing is being written, the file alone is, as on a read-only disk."""
    if not path.exists():
        raise sqlite3.OperationalError("there is no such file")
    if not path.with_name(f"{path.name}-wal").exists():
        return _connected(_uri(path, "ro") + "&immutable=1")
    connection = None
    try:
        connection = _connected(_uri(path, "ro"))
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.OperationalError:  # a killed run's, on a disk that cannot be written: its last entries are beside it
        if connection is not None:
            connection.close()
        return _copied(path)
    return connection


def _copied(path: Path) -> sqlite3.Connection:
    """A copy in memory, with what is beside the file."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for name in (path.name, f"{path.name}-wal"):
            shutil.copyfile(path.with_name(name), copy.with_name(name))
        memory = _connected(":memory:")
        with closing(_connected(_uri(copy, "rw"))) as found:
            found.backup(memory)
    return memory


def _connected(place: str) -> sqlite3.Connection:
    connection = sqlite3.connect(place, timeout=60.0, isolation_level=None, check_same_thread=False, uri=True)
    try:
        connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"


def schema_of(connection: sqlite3.Connection) -> str | None:
    """The schema that a file states, of whatever version it is; None for an empty file, or another program's."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    table = "entries" if "entries" in tables else "facts" if "facts" in tables else None
    if table is None:
        return None
    row = connection.execute(f"SELECT value FROM {table} WHERE name = 'schema'").fetchone()
    return None if row is None else str(row[0])


def is_ours(connection: sqlite3.Connection, schema: int) -> bool:
    """Whether a file is empty, or a ledger of this schema: nothing is added to any other."""
    empty = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
    return empty or schema_of(connection) == str(schema)
