"""DP-FedSAM, Table 1 (and Figure 2) on EMNIST: all algorithms at one epsilon, for three ways to share out the letters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from sfumato.report.curves import Plot
from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.table import QUICK, Cell, Done, Row, Table

SPLITS = {"Dirichlet 0.3": "dirichlet:0.3", "Dirichlet 0.6": "dirichlet:0.6", "iid": "iid"}
# method: train and test accuracy with their spread for each split
PRINTED = {
    "DP-FedAvg": ((99.28, 73.10, 0.16), (99.55, 82.20, 0.35), (99.66, 81.90, 0.86)),
    "Fed-SMP-rand_k": ((99.24, 73.72, 0.53), (99.71, 82.18, 0.73), (99.71, 84.16, 0.83)),
    "Fed-SMP-top_k": ((99.31, 75.75, 0.35), (99.72, 83.41, 0.91), (99.73, 83.32, 0.52)),
    "DP-FedAvg-blur": ((99.12, 73.71, 0.02), (99.66, 83.20, 0.01), (99.67, 82.92, 0.49)),
    "DP-FedAvg-blurs": ((99.63, 76.25, 0.35), (99.72, 83.41, 0.91), (99.74, 82.92, 0.49)),
    "DP-FedSAM": ((96.28, 76.81, 0.81), (95.07, 84.32, 0.19), (95.61, 85.90, 0.72)),
    "DP-FedSAM-top_k": ((94.77, 77.27, 0.67), (95.87, 84.80, 0.60), (96.12, 87.70, 0.83)),
}


def table(scale: str) -> Table:
    """The table at a scale."""
    quick, settings = scale == QUICK, common.base(scale)
    cells: list[Cell] = []
    for split, method in product(list(SPLITS)[-1:] if quick else SPLITS, common.METHODS):
        printed = PRINTED[method.removesuffix(", as published")][list(SPLITS).index(split)]
        paper = {"method": method, "split": split, "printed": list(printed)}
        chosen = {**settings, **common.METHODS[method], "split": SPLITS[split]}
        for seed in range(2 if quick else 3):
            cells.append(common.cell(f"{split}, {method}", chosen, common.EPSILON, seed, paper))
    return Table(
        "dp-fedsam-table-1",
        f"DP-FedSAM, Table 1: EMNIST Letters at epsilon {common.EPSILON:g}, delta 1/500",
        common.PAPER,
        scale,
        tuple(cells),
        _row,
        _curves,
        common.words(scale),
        common.NOTES,
        _findings,
    )


def _row(done: Sequence[Done]) -> Row:
    facts = done[0].cell.paper
    train, test, off = facts["printed"]
    own = common.measured(done)
    return {
        "split": facts["split"],
        "algorithm": facts["method"],
        "train, paper": f"{train:.2f}",
        "train, ours": own.pop("train, ours"),
        "test, paper": f"{test:.2f} ± {off:.2g}",
        "test, ours": own.pop("test, ours"),
        "gap, paper": f"{train - test:.2f}",
        **own,
    }


def _of(done: Sequence[Done]) -> dict[str, list[Done]]:
    return {split: found for split in SPLITS if (found := [d for d in done if d.cell.paper["split"] == split])}


def _curves(done: Sequence[Done]) -> list[Plot]:
    plots: list[Plot] = []
    for split, cells in _of(done).items():
        name = f"accuracy-{split.lower()}".replace(" ", "-").replace(".", "-")
        plots += common.curves(name, f"Test accuracy by round, {split}", cells)
    return plots


def _findings(done: Sequence[Done]) -> list[str]:
    found = []
    for split, cells in _of(done).items():
        number = list(SPLITS).index(split)
        paper = sorted(PRINTED, key=lambda method: -PRINTED[method][number][1])
        found.append(f"{split}, our order: {common.order(cells)}.")
        found.append(f"{split}, the paper's: {' > '.join(f'{m} {PRINTED[m][number][1]:.1f}' for m in paper)}.")
    return found
