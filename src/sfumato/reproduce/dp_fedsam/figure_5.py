"""DP-FedSAM, Figure 5: sweeps of the radius and of local epochs. The paper prints no numbers for it."""

from __future__ import annotations

from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.table import Cell, Group, Row, Table, at

RADII = (0.01, 0.1, 0.3, 0.5, 0.7, 1.0)
_NOTE = "The paper finds radius 0.5 the best of these, and 40 local epochs too many."


def table(scale: str) -> Table:
    """The figure at a scale."""
    radii, epochs = at(scale, (RADII[:2], (1, 2)), (RADII, (1, 2, 5, 10)), (RADII, (1, 10, 20, 30, 40)))
    cells: list[Cell] = []
    for name, value in [*(("radius", radius) for radius in radii), *(("epochs", count) for count in epochs)]:
        row, seeds = f"{name} {value:g}", at(scale, 2, 2, 3)
        settings = {**common.base(scale), **common.METHODS["DP-FedSAM"], name: value}
        cells += common.cells(seeds, row, settings, {"method": row, "swept": name})
    panels = [
        common.Panel(f"By {name}, our order", {"swept": name}, f"figure-5-{name}", f"Test accuracy by round, by {name}")
        for name in ("radius", "epochs")
    ]
    title = f"DP-FedSAM, Figure 5: radius and local epochs, Dirichlet 0.6, epsilon {common.EPSILON:g}"
    more = ", 2 seeds in place of 3, and up to 10 epochs in place of 40"
    return common.table("dp-fedsam-figure-5", title, scale, cells, _row, panels, _NOTE, more=more)


def _row(done: Group) -> Row:
    return {"setting": done[0].cell.row, **common.measured(done)}
