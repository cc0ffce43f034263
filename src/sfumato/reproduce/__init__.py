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
            "sfumato.reproduce.prifedsync.table_1",
            "Rounds and mu at 90 % average personal accuracy, non-iid MNIST",
        ),
        Entry(
            "prifedsync-figure-4-1",
            "sfumato.reproduce.prifedsync.figure_4_1",
            "Personal models against the global one, non-iid MNIST",
        ),
        Entry(
            "prifedsync-table-2",
            "sfumato.reproduce.prifedsync.table_2",
            "Batches of 8 against 16: privacy and computation (with Figure 4.2)",
        ),
        Entry(
            "prifedsync-table-3",
            "sfumato.reproduce.prifedsync.table_3",
            "Rounds and mu at 52 % average personal accuracy, CIFAR-10",
        ),
        Entry(
            "dp-fed-ls-table-1",
            "sfumato.reproduce.dp_fed_ls.table_1",
            "MNIST with the paper's noise, and with the noise that is proven enough (with Figure 2)",
        ),
        Entry("dp-fed-ls-table-2", "sfumato.reproduce.dp_fed_ls.table_2", "The privacy columns; no training"),
        Entry(
            "dp-fed-ls-table-3",
            "sfumato.reproduce.dp_fed_ls.table_3",
            "An LSTM on Shakespeare, and its privacy columns (with Figure 5)",
        ),
        Entry(
            "dp-fed-ls-figure-4",
            "sfumato.reproduce.dp_fed_ls.figure_4",
            "Smoothing under much noise and high learning rates, Shakespeare",
        ),
        Entry(
            "dp-fedsam-table-1",
            "sfumato.reproduce.dp_fedsam.table_1",
            "Seven algorithms at one epsilon, EMNIST Letters, three splits",
        ),
        Entry("dp-fedsam-table-2", "sfumato.reproduce.dp_fedsam.table_2", "The same at epsilon 4 to 10"),
        Entry("dp-fedsam-table-3", "sfumato.reproduce.dp_fedsam.table_3", "How many coordinates are kept"),
        Entry("dp-fedsam-table-4", "sfumato.reproduce.dp_fedsam.table_4", "What sharpness-aware steps change"),
        Entry(
            "dp-fedsam-figure-3",
            "sfumato.reproduce.dp_fedsam.figure_3",
            "Loss landscapes, norms before the clip, equation 18 (with Figures 1 and 4)",
        ),
        Entry("dp-fedsam-figure-5", "sfumato.reproduce.dp_fedsam.figure_5", "Sweeps of radius and local epochs"),
    )
}


def find(name: str) -> Entry:
    """The table of that name."""
    if name not in TABLES:
        raise BadValue(f"there is no table {name!r}. {nearest(name, TABLES)}")
    return TABLES[name]
