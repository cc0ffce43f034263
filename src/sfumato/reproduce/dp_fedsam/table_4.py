"""DP-FedSAM, Table 4: what sharpness-aware steps change, with and without sparse updates."""

from __future__ import annotations

import numpy as np

from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.dp_fedsam.table_1 import PRINTED, theirs
from sfumato.reproduce.show import accuracies, having
from sfumato.reproduce.table import Cell, Group, Row, Table, at

PAIRS = (("DP-FedAvg", "DP-FedSAM"), ("Fed-SMP-top_k", "DP-FedSAM-top_k"))


def table(scale: str) -> Table:
    """The table at a scale."""
    cells: list[Cell] = []
    for method in (method for pair in PAIRS for method in pair):
        settings = common.base(scale) | common.METHODS[method]
        cells += common.cells(at(scale, 2, 3, 3), method, settings, {"method": method})
    title = f"DP-FedSAM, Table 4: the effect of SAM on EMNIST Letters, Dirichlet 0.6, epsilon {common.EPSILON:g}"
    panels = (common.Panel("Our order", {}, "accuracy", "Test accuracy by round", _gains),)
    return common.table("dp-fedsam-table-4", title, scale, cells, _row, panels)


def _row(done: Group) -> Row:
    method = done[0].cell.row
    return {"algorithm": method, **theirs(*PRINTED[method][1]), **common.measured(done)}


def _gains(done: Group) -> list[str]:
    found = []
    for plain, sharp in PAIRS:
        before, after = (np.mean(accuracies(having(done, method=method))) for method in (plain, sharp))
        ours, paper = after - before, PRINTED[sharp][1][1] - PRINTED[plain][1][1]
        found.append(f"{sharp} against {plain}: {ours:+.2f} points of test accuracy; the paper: {paper:+.2f}.")
    return found
