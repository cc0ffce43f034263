"""DP-FedSAM, Table 1 (and Figure 2) on EMNIST: all algorithms at one epsilon, for three ways to share out the letters."""

from __future__ import annotations

from itertools import product

from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.table import QUICK, Cell, Group, Row, Table, at

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
    cells: list[Cell] = []
    for (number, split), method in product(enumerate(SPLITS), common.METHODS):
        if scale != QUICK or split == "iid":
            printed = list(PRINTED[method.removesuffix(", as published")][number])
            settings = {**common.base(scale), **common.METHODS[method], "split": SPLITS[split]}
            paper = {"method": method, "split": split, "printed": printed}
            cells += common.cells(at(scale, 2, 3, 3), f"{split}, {method}", settings, paper)
    title = f"DP-FedSAM, Table 1: EMNIST Letters at epsilon {common.EPSILON:g}, delta 1/500"
    panels = [_panel(number, split) for number, split in enumerate(SPLITS)]
    return common.table("dp-fedsam-table-1", title, scale, cells, _row, panels)


def _panel(number: int, split: str) -> common.Panel:
    """One split: our order and the paper's."""
    tests = {method: values[number][1] for method, values in PRINTED.items()}
    order = " > ".join(f"{method} {tests[method]:.1f}" for method in sorted(tests, key=lambda method: -tests[method]))
    name = f"accuracy-{split.lower()}".replace(" ", "-").replace(".", "-")
    title, more = f"Test accuracy by round, {split}", lambda done: [f"{split}, the paper's: {order}."]
    return common.Panel(f"{split}, our order", {"split": split}, name, title, more)


def theirs(train: float, test: float, off: float) -> Row:
    """The paper's accuracies and their gap."""
    return {
        "train, paper": f"{train:.2f}",
        "test, paper": f"{test:.2f} ± {off:.2g}",
        "gap, paper": f"{train - test:.2f}",
    }


def _row(done: Group) -> Row:
    paper = done[0].cell.paper
    both = {**theirs(*paper["printed"]), **common.measured(done)}
    pairs = [f"{what}, {whose}" for what in ("train", "test", "gap") for whose in ("paper", "ours")]
    return {"split": paper["split"], "algorithm": paper["method"], **{name: both[name] for name in pairs}, **both}
