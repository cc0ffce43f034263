"""PriFedSync, Figure 4.1: the personal models do better than the global one. The paper prints no numbers for it."""

from __future__ import annotations

from sfumato.reproduce.prifedsync import common
from sfumato.reproduce.prifedsync.table_1 import PRINTED
from sfumato.reproduce.show import spread
from sfumato.reproduce.table import Cell, Group, Row, Table, scaled

_CLIENTS = 40
_SCALED = f"{_CLIENTS} clients of 600 records in place of 100, and one seed. The paper's setting: --full."
_NOTE = "The paper's accuracy is that of the personal models in Table 1, at the same number of rounds."


def table(scale: str) -> Table:
    """The figure at a scale."""
    cells: list[Cell] = []
    for sigma in (0.75, 1.0):
        rounds, mu, accuracy, _ = PRINTED[0.5, sigma]
        settings = common.MNIST | {"rate": 0.5, "sigma": sigma}
        paper = {"rounds": rounds, "mu": mu, "accuracy": accuracy}
        row, changed = f"sigma {sigma:g}", {"target": None, "global": True}
        cells += common.cells(scale, row, settings, paper, rounds, _CLIENTS, 3, **changed)
    title = "PriFedSync, Figure 4.1: personal models against the global one, p = 0.5"
    plots = common.curves("personal-against-global", "Accuracy on the clients' own test parts", both=True)
    words, notes = scaled(scale, common.QUICK, _SCALED), (_NOTE, *common.NOTES)
    return Table("prifedsync-figure-4-1", title, common.PAPER, scale, cells, _row, plots, words, notes)


def _row(done: Group) -> Row:
    final = [100 * one.result["curve"][-1][4] for one in done]
    return {**common.row(done), "accuracy of the global model, ours": spread(final, "{:.2f}")}
