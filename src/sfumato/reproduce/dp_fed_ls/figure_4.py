"""DP-Fed-LS, Figure 4: much noise and high learning rates, moved from SVHN to Shakespeare. The paper prints no numbers for it."""

from __future__ import annotations

from itertools import product

from sfumato.report.curves import Plot
from sfumato.report.words import bound
from sfumato.reproduce.client_level import TRAIN
from sfumato.reproduce.dp_fed_ls import common
from sfumato.reproduce.show import accuracy, by_round, having, minutes
from sfumato.reproduce.table import Cell, Group, Row, Table, at, scaled, seeded

RATIOS, RATES, STRENGTHS = (2.0, 2.5, 3.0), (1.47, 0.75), (0.0, 1.0)
_FULL = "Shakespeare in place of SVHN, which is not at hand."
_SCALED = (
    "Shakespeare in place of SVHN, which is not at hand; 50 windows of each of 975 roles, one LSTM layer of 64 units, batches of "
    "10, rate 0.1, 30 rounds, one seed."
)


def table(scale: str) -> Table:
    """The figure at a scale."""
    cells: list[Cell] = []
    for ratio, lr, strength in product(RATIOS, RATES, STRENGTHS):
        settings = common.shakespeare(scale, common.POISSON, strength=strength, noise_multiplier=ratio, lr=lr)
        cells += seeded(at(scale, 1, 1, 3), f"z {ratio:g}, lr {lr:g}", settings, TRAIN)
    title = "DP-Fed-LS, Figure 4: with and without smoothing under much noise, Poisson sampling"
    words = scaled(scale, common.QUICK, _SCALED, _FULL)
    return Table("dp-fed-ls-figure-4", title, common.PAPER, scale, cells, _row, _curves, words, common.NOTES)


def _row(done: Group) -> Row:
    settings = done[0].cell.settings
    row = {"z": f"{settings['noise_multiplier']:g}", "lr": f"{settings['lr']:g}"}
    row["epsilon, proven"] = bound(done[0].result["epsilon"])
    row |= {f"strength {strength:g}": accuracy(having(done, strength=strength)) for strength in STRENGTHS}
    return row | minutes(done)


def _curves(done: Group) -> list[Plot]:
    plots: list[Plot] = []
    for ratio in RATIOS:
        lines = {
            f"lr {lr:g}, strength {strength:g}": having(done, noise_multiplier=ratio, lr=lr, strength=strength)
            for lr, strength in product(RATES, STRENGTHS)
        }
        name, title = f"figure-4-z-{ratio:g}".replace(".", "-"), f"Validation accuracy, z {ratio:g}"
        plots += by_round(name, title, "Validation accuracy", lines)
    return plots
