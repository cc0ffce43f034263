"""DP-FedSAM, Figure 5: sweeps of the radius and of local epochs. The paper prints no numbers for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.report.curves import Plot
from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.table import FULL, QUICK, Cell, Done, Table

RADII = (0.01, 0.1, 0.3, 0.5, 0.7, 1.0)
EPOCHS = {"default": (1, 2, 5, 10), "full": (1, 10, 20, 30, 40)}


def table(scale: str) -> Table:
    """The figure at a scale."""
    settings = {**common.base(scale), **common.METHODS["DP-FedSAM"]}
    radii, epochs = (RADII[:2], (1, 2)) if scale == QUICK else (RADII, EPOCHS[scale])
    swept: list[dict[str, Any]] = [{"radius": radius} for radius in radii] + [{"epochs": count} for count in epochs]
    cells: list[Cell] = []
    for changed in swept:
        ((name, value),) = changed.items()
        paper = {"method": f"{name} {value:g}", "swept": name}
        for seed in range(3 if scale == FULL else 2):
            cells.append(common.cell(f"{name} {value:g}", {**settings, **changed}, common.EPSILON, seed, paper))
    return Table(
        "dp-fedsam-figure-5",
        f"DP-FedSAM, Figure 5: radius and local epochs, Dirichlet 0.6, epsilon {common.EPSILON:g}",
        common.PAPER,
        scale,
        tuple(cells),
        lambda done: {"setting": done[0].cell.row, **common.measured(done)},
        _curves,
        common.words(scale, ", 2 seeds in place of 3, and up to 10 epochs in place of 40"),
        ("The paper finds radius 0.5 the best of these, and 40 local epochs too many.", *common.NOTES),
        _findings,
    )


def _of(done: Sequence[Done], swept: str) -> list[Done]:
    return [one for one in done if one.cell.paper["swept"] == swept]


def _curves(done: Sequence[Done]) -> list[Plot]:
    plots: list[Plot] = []
    for swept in ("radius", "epochs"):
        plots += common.curves(f"figure-5-{swept}", f"Test accuracy by round, by {swept}", _of(done, swept))
    return plots


def _findings(done: Sequence[Done]) -> list[str]:
    return [f"By {swept}, our order: {common.order(_of(done, swept))}." for swept in ("radius", "epochs")]
