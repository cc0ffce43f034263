"""PriFedSync, Table 2 and Figure 4.2: batches of 8 cost less privacy and more computation than batches of 16."""

from __future__ import annotations

from sfumato.reproduce.prifedsync import common
from sfumato.reproduce.table import FULL, QUICK, Cell, Table, scaled

# sigma, batch: steps, rounds, mu
PRINTED = {
    (1.0, 8): (76, 266, 3.24), (1.0, 16): (38, 194, 3.92), (0.9, 8): (76, 229, 3.64), (0.9, 16): (38, 176, 4.51),
    (0.75, 8): (76, 191, 4.84), (0.75, 16): (38, 127, 5.58),
}  # fmt: skip
_CLIENTS = 20
_SCALED = f"{_CLIENTS} clients of 600 records in place of 100, one seed, and sigma 1 and 0.75 only. The paper's setting: --full."


def table(scale: str) -> Table:
    """The table at a scale."""
    cells: list[Cell] = []
    for (sigma, batch), (steps, rounds, mu) in PRINTED.items():
        settings = common.MNIST | {"rate": 0.5, "sigma": sigma, "batch": batch, "steps": steps}
        paper = {"rounds": rounds, "mu": mu, "iterations": steps * rounds}
        changed = {"batch": batch, "steps": steps // 4} if scale == QUICK else {}
        if scale == FULL or sigma != 0.9:
            row, longer = f"sigma {sigma:g}, batch {batch}", int(1.5 * rounds)
            cells += common.cells(scale, row, settings, paper, longer, _CLIENTS, **changed)
    title = "PriFedSync, Table 2 and Figure 4.2: batches of 8 and 16 at 90 % average personal accuracy, p = 0.5"
    plots = common.curves("figure-4-2", "Personal accuracy by round, batches of 8 and 16")
    words = scaled(scale, common.QUICK, _SCALED)
    return Table("prifedsync-table-2", title, common.PAPER, scale, cells, common.row, plots, words, common.NOTES)
