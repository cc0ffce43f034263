"""PriFedSync, Table 1: rounds, mu and accuracy when the average personal accuracy reaches 90 percent."""

from __future__ import annotations

from functools import partial
from typing import Any

from sfumato.reproduce.prifedsync import common
from sfumato.reproduce.table import FULL, QUICK, Cell, Table

# rate, sigma: rounds, mu, test accuracy, accuracy without privacy
PRINTED = {
    (1.0, 1.0): (93, 2.71, 90.03, 98.74), (1.0, 0.9): (83, 3.10, 90.25, 98.72), (1.0, 0.75): (64, 3.96, 90.10, 98.55),
    (0.5, 1.0): (194, 3.92, 90.02, 98.90), (0.5, 0.9): (176, 4.51, 90.02, 98.83), (0.5, 0.75): (127, 5.58, 90.11, 98.54),
    (0.25, 1.0): (386, 5.52, 90.00, 98.75), (0.25, 0.9): (325, 6.13, 90.00, 98.75), (0.25, 0.75): (245, 7.75, 90.04, 98.55),
}  # fmt: skip
_CHOSEN = ((1.0, 1.0), (1.0, 0.75), (0.25, 1.0))
_CLIENTS = 40
_SCALED = (
    f"{_CLIENTS} clients of 600 records in place of 100 (the personal models learn mostly from their own records), one seed, and "
    "the cells p = 1 with sigma 1 and 0.75 and p = 0.25 with sigma 1, with one run without privacy. The paper's setting: --full."
)


def table(scale: str) -> Table:
    """The table at a scale."""
    full, quick = scale == FULL, scale == QUICK
    cells: list[Cell] = []
    for rate, sigma in PRINTED if full else _CHOSEN:
        rounds, mu, accuracy, plain = PRINTED[rate, sigma]
        chosen: dict[str, Any] = {
            **common.MNIST,
            "rate": rate,
            "sigma": sigma,
            "rounds": (4 if full else 3) * rounds // 2,
        }
        chosen |= {"clients": common.MNIST["clients"] if full else _CLIENTS} | (common.QUICK if quick else {})
        paper = {
            "rounds": rounds,
            "mu": mu,
            "accuracy": accuracy,
            "settings": common.MNIST | {"rate": rate, "sigma": sigma},
        }
        for seed in range(3 if full else 1):
            cells.append(Cell(f"p {rate:g}, sigma {sigma:g}", chosen, seed, common.train, paper))
        if full or rate == 1.0 == sigma:
            free = {**chosen, "sigma": None, "target": None, "rounds": chosen["rounds"] if quick else rounds}
            without = {"rounds": rounds, "accuracy": plain}
            cells.append(Cell(f"p {rate:g}, {rounds} rounds without privacy", free, 0, common.train, without))
    return Table(
        "prifedsync-table-1",
        "PriFedSync, Table 1: non-iid MNIST at 90 % average personal accuracy",
        common.PAPER,
        scale,
        tuple(cells),
        common.row,
        partial(common.curves, "accuracy", "Personal accuracy by round"),
        "" if full else common.QUICK_WORDS if quick else _SCALED,
        common.NOTES,
    )
