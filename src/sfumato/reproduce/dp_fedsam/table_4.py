"""DP-FedSAM, Table 4: what sharpness-aware steps change, with and without sparse updates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.dp_fedsam.table_1 import PRINTED
from sfumato.reproduce.table import QUICK, Cell, Done, Row, Table

PAIRS = (("DP-FedAvg", "DP-FedSAM"), ("Fed-SMP-top_k", "DP-FedSAM-top_k"))


def table(scale: str) -> Table:
    """The table at a scale."""
    settings = common.base(scale)
    cells: list[Cell] = []
    for method in (name for pair in PAIRS for name in pair):
        chosen = {**settings, **common.METHODS[method]}
        for seed in range(2 if scale == QUICK else 3):
            cells.append(common.cell(method, chosen, common.EPSILON, seed, {"method": method}))
    return Table(
        "dp-fedsam-table-4",
        f"DP-FedSAM, Table 4: the effect of SAM on EMNIST Letters, Dirichlet 0.6, epsilon {common.EPSILON:g}",
        common.PAPER,
        scale,
        tuple(cells),
        _row,
        lambda done: common.curves("accuracy", "Test accuracy by round", done),
        common.words(scale),
        common.NOTES,
        _findings,
    )


def _row(done: Sequence[Done]) -> Row:
    method = done[0].cell.paper["method"]
    train, test, off = PRINTED[method][1]
    printed = {"train, paper": f"{train:.2f}", "test, paper": f"{test:.2f} ± {off:.2g}"}
    return {"algorithm": method, **printed, "gap, paper": f"{train - test:.2f}", **common.measured(done)}


def _findings(done: Sequence[Done]) -> list[str]:
    found = [f"Our order: {common.order(done)}."]
    for plain, sharp in PAIRS:
        ours = [
            float(np.mean([100 * one.result["accuracy"] for one in done if one.cell.row == name]))
            for name in (plain, sharp)
        ]
        theirs = PRINTED[sharp][1][1] - PRINTED[plain][1][1]
        found.append(
            f"{sharp} against {plain}: {ours[1] - ours[0]:+.2f} points of test accuracy; the paper: {theirs:+.2f}."
        )
    return found
