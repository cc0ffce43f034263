"""PriFedSync, Figure 4.1: the personal models do better than the global one. The paper prints no numbers for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sfumato.reproduce.prifedsync import common
from sfumato.reproduce.prifedsync.table_1 import PRINTED
from sfumato.reproduce.table import FULL, QUICK, Cell, Done, Row, Table, spread

_CLIENTS = 40
_SCALED = f"{_CLIENTS} clients of 600 records in place of 100, and one seed. The paper's setting: --full."


def table(scale: str) -> Table:
    """The figure at a scale."""
    full, quick = scale == FULL, scale == QUICK
    cells = []
    for sigma in (0.75, 1.0):
        rounds, mu, accuracy, _ = PRINTED[0.5, sigma]
        chosen: dict[str, Any] = {**common.MNIST, "rate": 0.5, "sigma": sigma, "rounds": rounds, "global": True}
        chosen |= {"target": None, "clients": common.MNIST["clients"] if full else _CLIENTS}
        chosen |= common.QUICK if quick else {}
        paper: dict[str, Any] = {"rounds": rounds, "mu": mu, "accuracy": accuracy}
        paper |= {"settings": common.MNIST | {"rate": 0.5, "sigma": sigma}}
        for seed in range(3 if full else 1):
            cells.append(Cell(f"sigma {sigma:g}", chosen, seed, common.train, paper))
    return Table(
        "prifedsync-figure-4-1",
        "PriFedSync, Figure 4.1: personal models against the global one, p = 0.5",
        common.PAPER,
        scale,
        tuple(cells),
        _row,
        partial(common.curves, "personal-against-global", "Accuracy on the clients' own test parts", both=True),
        "" if full else common.QUICK_WORDS if quick else _SCALED,
        (
            "The paper's accuracy is that of the personal models in Table 1, at the same number of rounds.",
            *common.NOTES,
        ),
    )


def _row(done: Sequence[Done]) -> Row:
    row = common.row(done)
    final = spread([100 * one.result["curve"][-1][4] for one in done], "{:.2f}")
    return {**row, "accuracy of the global model, ours": final}
