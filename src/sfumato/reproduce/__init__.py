"""The papers' tables, run again: theirs and ours side by side. `TABLES` lists them by name without loading torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from sfumato.errors import BadValue, nearest

if TYPE_CHECKING:
    from sfumato.reproduce.table import Table


@dataclass(frozen=True)
class Entry:
    """A table's name, the module that makes it, and one line about it."""

    name: str
    home: str
    summary: str

    def make(self, scale: str) -> Table:
        """The table, at one of the scales."""
        table: Table = import_module(self.home).table(scale)
        return table


TABLES = {
    entry.name: entry
    for entry in (
        Entry(
            "prifedsync-table-1",
            "sfumato.reproduce.prifedsync_table_1",
            "Rounds and mu at 90 % average personal accuracy, non-iid MNIST",
        ),
        Entry(
            "prifedsync-figure-4-1",
            "sfumato.reproduce.prifedsync_figure_4_1",
            "Personal models against the global one, non-iid MNIST",
        ),
        Entry(
            "prifedsync-table-2",
            "sfumato.reproduce.prifedsync_table_2",
            "Batches of 8 against 16: privacy and computation (with Figure 4.2)",
        ),
        Entry(
            "prifedsync-table-3",
            "sfumato.reproduce.prifedsync_table_3",
            "Rounds and mu at 52 % average personal accuracy, CIFAR-10",
        ),
    )
}


def find(name: str) -> Entry:
    """The table of that name."""
    if name not in TABLES:
        raise BadValue(f"there is no table {name!r}. {nearest(name, TABLES)}")
    return TABLES[name]
