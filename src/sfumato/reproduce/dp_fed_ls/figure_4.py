"""DP-Fed-LS, Figure 4: much noise and high learning rates, moved from SVHN to Shakespeare. The paper prints no numbers for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from sfumato.guarantee import rounded_up
from sfumato.report.curves import Curve, Plot
from sfumato.reproduce.client_level import banded, train
from sfumato.reproduce.dp_fed_ls import common
from sfumato.reproduce.dp_fed_ls.common import POISSON, RATE, SMALL_RATE
from sfumato.reproduce.table import FULL, QUICK, Cell, Done, Row, Table, spread

RATIOS, RATES = (2.0, 2.5, 3.0), (1.47, 0.75)
_SCALED = (
    "Shakespeare in place of SVHN, which is not at hand; 50 windows of each of 975 roles, one LSTM layer of 64 units, batches of "
    "10, rate 0.1, 30 rounds, one seed."
)


def table(scale: str) -> Table:
    """The figure at a scale."""
    full, quick = scale == FULL, scale == QUICK
    scaled = {} if full else common.QUICK if quick else common.SMALL
    rate = RATE if full else 0.5 if quick else SMALL_RATE
    cells = []
    for ratio, lr, strength in product(RATIOS, RATES, (0.0, 1.0)):
        settings: dict[str, Any] = {**common.SHAKESPEARE, **scaled, "strength": strength, "noise_multiplier": ratio}
        settings |= {"lr": lr, "sample": common.sample_of(POISSON, rate, settings["clients"])}
        for seed in range(3 if full else 1):
            cells.append(Cell(f"z {ratio:g}, lr {lr:g}", settings, seed, train))
    return Table(
        "dp-fed-ls-figure-4",
        "DP-Fed-LS, Figure 4: with and without smoothing under much noise, Poisson sampling",
        common.PAPER,
        scale,
        tuple(cells),
        _row,
        _curves,
        common.QUICK_WORDS if quick else "Shakespeare in place of SVHN, which is not at hand." if full else _SCALED,
        common.NOTES,
    )


def _row(done: Sequence[Done]) -> Row:
    settings = done[0].cell.settings
    row = {"z": f"{settings['noise_multiplier']:g}", "lr": f"{settings['lr']:g}"}
    row["epsilon, proven"] = rounded_up(done[0].result["epsilon"], 4)
    for strength in (0.0, 1.0):
        cells = [one for one in done if one.cell.settings["strength"] == strength]
        row[f"strength {strength:g}"] = spread([100 * one.result["accuracy"] for one in cells], "{:.2f}")
    row["minutes"] = f"{sum(one.seconds for one in done) / 60:.1f}"
    return row


def _curves(done: Sequence[Done]) -> list[Plot]:
    found = []
    for ratio in RATIOS:
        lines: list[Curve] = []
        for lr, strength in product(RATES, (0.0, 1.0)):
            wanted = {"noise_multiplier": ratio, "lr": lr, "strength": strength}
            cells = [one for one in done if wanted.items() <= one.cell.settings.items()]
            if cells:
                lines.append(banded(f"lr {lr:g}, strength {strength:g}", len(lines), cells, 2))
        if lines:
            name, title = f"figure-4-z-{ratio:g}".replace(".", "-"), f"Validation accuracy, z {ratio:g}"
            found.append(Plot(name, title, "Round", "Validation accuracy", tuple(lines), percent=True))
    return found
