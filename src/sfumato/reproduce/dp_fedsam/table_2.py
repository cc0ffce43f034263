"""DP-FedSAM, Table 2: several epsilons, moved from CIFAR-10 to EMNIST Letters."""

from __future__ import annotations

from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.show import beside, minutes
from sfumato.reproduce.table import Cell, Group, Row, Table, at

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
    shown, seeds = at(scale, 2, 4, 4), at(scale, 2, 2, 3)
    cells: list[Cell] = []
    for method, accuracies in PRINTED.items():
        for epsilon, accuracy in list(zip(EPSILONS, accuracies, strict=True))[:shown]:
            paper = {"method": method, "epsilon": epsilon, "accuracy": accuracy}
            cells += common.cells(seeds, method, common.base(scale) | common.METHODS[method], paper, epsilon)
    pictures = {8.0: ("accuracy-epsilon-8", "Test accuracy by round, epsilon 8")}
    panels = [
        common.Panel(f"Epsilon {epsilon:g}, our order", {"epsilon": epsilon}, *pictures.get(epsilon, ()))
        for epsilon in EPSILONS
    ]
    title, more = "DP-FedSAM, Table 2: epsilon 4 to 10, Dirichlet 0.6", ", and 2 seeds in place of 3"
    return common.table("dp-fedsam-table-2", title, scale, cells, _row, panels, common.CIFAR_NOTE, more=more)


def _row(done: Group) -> Row:
    return {"algorithm": done[0].cell.row, **beside(done, "epsilon", "paper (CIFAR-10)"), **minutes(done)}
