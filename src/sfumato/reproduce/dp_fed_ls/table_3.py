"""DP-Fed-LS, Table 3 and Figure 5: an LSTM on Shakespeare, scaled; and the privacy columns of the paper's own setting."""

from __future__ import annotations

from sfumato.report.curves import Plot
from sfumato.report.words import bound
from sfumato.reproduce.client_level import TRAIN
from sfumato.reproduce.dp_fed_ls import common, table_2
from sfumato.reproduce.dp_fed_ls.common import POISSON, UNIFORM
from sfumato.reproduce.show import beside, minutes
from sfumato.reproduce.table import FULL, Cell, Done, Group, Row, Table, at, scaled, seeded

STRENGTHS = (0.0, 0.5, 1.0, 1.5)
# sampling, noise multiplier: epsilon, then accuracy by strength, where it can be read
PRINTED = {
    (UNIFORM, 1.6): (14.94, (None, 39.14, 39.18, 40.16)), (UNIFORM, 1.4): (17.69, (None, 40.27, 40.94, 40.89)),
    (UNIFORM, 1.2): (22.43, (None, 41.95, 42.60, 42.50)), (UNIFORM, 1.0): (27.24, (None, 43.76, 43.90, 43.95)),
    (POISSON, 1.6): (6.78, (None, 39.07, 39.45, 39.38)), (POISSON, 1.4): (8.22, (None, 40.02, 41.07, 40.99)),
    (POISSON, 1.2): (10.41, (None, 42.02, 42.09, 42.19)), (POISSON, 1.0): (14.04, (41.55, 43.59, 43.78, 43.67)),
}  # fmt: skip
_SCALED = (
    "All 975 roles, but 50 windows of each in place of all (3,000 on average), one LSTM layer of 64 units (24,784 parameters) in "
    "place of two of 256 (819,920), batches of 10 in place of 50, rate 0.1 in place of 0.2, 30 rounds in place of 100, z 1 and "
    "1.6 only, and one seed. The "
    "epsilons `of this run` are those of the scaled run, the others those of the paper's setting. The paper's setting: --full."
)
_NOTES = (
    "z is the noise over the sensitivity: 2 G for uniform sampling, G for Poisson. `as they count` is the paper's own "
    "accounting, `proven` the library's, for the paper's setting.",
    "The paper's row of strength 0 can be read at one place only.",
    *common.NOTES,
)


def table(scale: str) -> Table:
    """The table at a scale."""
    cells: list[Cell] = []
    for (sampling, ratio), (epsilon, accuracies) in PRINTED.items():
        if scale == FULL or ratio in (1.0, 1.6):
            cells.append(table_2.privacy(sampling, ratio, epsilon, 975, 0.2, 100))
            for strength, accuracy in zip(STRENGTHS, accuracies, strict=True):
                settings = common.shakespeare(scale, sampling, strength=strength)
                settings["noise_multiplier"] = 2 * ratio if sampling == UNIFORM else ratio
                cells += seeded(at(scale, 1, 1, 3), cells[-1].row, settings, TRAIN, {"accuracy": accuracy})
    title = "DP-Fed-LS, Table 3 and Figure 5: an LSTM on Shakespeare, roles as clients"
    words = scaled(scale, common.QUICK, _SCALED)
    return Table("dp-fed-ls-table-3", title, common.PAPER, scale, cells, _row, _curves, words, _NOTES)


def _runs(done: Group) -> list[Done]:
    return [one for one in done if one.cell.work == TRAIN]


def _row(done: Group) -> Row:
    runs = _runs(done)
    own = {"of this run": bound(runs[0].result["epsilon"]), **beside(runs, "strength")} if runs else {}
    return {**table_2.row(done), **own, **minutes(done)}


def _curves(done: Group) -> list[Plot]:
    """Figure 5: the smallest noise of both samplings."""
    plots: list[Plot] = []
    for sampling in (UNIFORM, POISSON):
        runs = [one for one in _runs(done) if one.cell.row == f"{sampling}, z 1"]
        plots += common.curves(f"figure-5-{sampling.lower()}", f"{sampling} sampling, z 1", runs)
    return plots
