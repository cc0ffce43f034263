"""DP-FedSAM, Table 2: several epsilons, moved from CIFAR-10 to EMNIST Letters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.table import FULL, QUICK, Cell, Done, Row, Table, spread

EPSILONS = (4.0, 6.0, 8.0, 10.0)
# CIFAR-10 with ResNet-18, test accuracy by epsilon
PRINTED = {
    "DP-FedAvg": (38.23, 43.87, 46.74, 49.06),
    "Fed-SMP-rand_k": (33.78, 42.21, 48.20, 50.62),
    "Fed-SMP-top_k": (38.99, 46.24, 49.78, 52.51),
    "DP-FedAvg-blur": (38.23, 43.93, 46.74, 49.06),
    "DP-FedAvg-blurs": (39.39, 46.64, 50.18, 52.91),
    "DP-FedSAM": (39.89, 47.92, 51.30, 53.18),
    "DP-FedSAM-top_k": (38.96, 49.17, 53.64, 56.36),
}


def table(scale: str) -> Table:
    """The table at a scale."""
    settings = common.base(scale)
    cells: list[Cell] = []
    for method, epsilon in product(PRINTED, EPSILONS[:2] if scale == QUICK else EPSILONS):
        paper = {"method": method, "epsilon": epsilon, "accuracy": PRINTED[method][EPSILONS.index(epsilon)]}
        for seed in range(3 if scale == FULL else 2):
            cells.append(common.cell(method, {**settings, **common.METHODS[method]}, epsilon, seed, paper))
    return Table(
        "dp-fedsam-table-2",
        "DP-FedSAM, Table 2: epsilon 4 to 10, Dirichlet 0.6",
        common.PAPER,
        scale,
        tuple(cells),
        _row,
        lambda done: common.curves("accuracy-epsilon-8", "Test accuracy by round, epsilon 8", _at(done, 8.0)),
        common.words(scale, ", and 2 seeds in place of 3"),
        ("The paper's values are CIFAR-10's with ResNet-18: compare orders, not numbers.", *common.NOTES),
        _findings,
    )


def _at(done: Sequence[Done], epsilon: float) -> list[Done]:
    return [one for one in done if one.cell.paper["epsilon"] == epsilon]


def _row(done: Sequence[Done]) -> Row:
    row = {"algorithm": done[0].cell.paper["method"]}
    for epsilon in dict.fromkeys(one.cell.paper["epsilon"] for one in done):
        cells = _at(done, epsilon)
        row[f"epsilon {epsilon:g}, paper (CIFAR-10)"] = f"{cells[0].cell.paper['accuracy']:.2f}"
        row[f"epsilon {epsilon:g}, ours"] = spread([100 * one.result["accuracy"] for one in cells], "{:.2f}")
    return {**row, "minutes": f"{sum(one.seconds for one in done) / 60:.1f}"}


def _findings(done: Sequence[Done]) -> list[str]:
    ordered = partial(common.order, label="method")
    epsilons = dict.fromkeys(one.cell.paper["epsilon"] for one in done)
    return [f"Epsilon {epsilon:g}, our order: {ordered(_at(done, epsilon))}." for epsilon in epsilons]
