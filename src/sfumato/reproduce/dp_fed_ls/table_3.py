"""DP-Fed-LS, Table 3 and Figure 5: an LSTM on Shakespeare, scaled; and the privacy columns of the paper's own setting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from sfumato.guarantee import rounded_up
from sfumato.report.curves import Plot
from sfumato.reproduce.client_level import train
from sfumato.reproduce.dp_fed_ls import common
from sfumato.reproduce.dp_fed_ls.common import POISSON, RATE, SMALL_RATE, UNIFORM
from sfumato.reproduce.dp_fed_ls.table_2 import columns
from sfumato.reproduce.table import FULL, MISSING, QUICK, Cell, Done, Row, Table, spread

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


def table(scale: str) -> Table:
    """The table at a scale."""
    full, quick = scale == FULL, scale == QUICK
    scaled = {} if full else common.QUICK if quick else common.SMALL
    rate = RATE if full else 0.5 if quick else SMALL_RATE
    cells = []
    for (sampling, ratio), (epsilon, accuracies) in PRINTED.items():
        if not full and ratio not in (1.0, 1.6):
            continue
        privacy = {"clients": 975, "rate": RATE, "rounds": 100, "delta": 975**-1.1, "sampling": sampling}
        row = f"{sampling}, z {ratio:g}"
        cells.append(Cell(row, {**privacy, "ratio": ratio, "printed": epsilon}, 0, columns))
        for strength, seed in product(STRENGTHS, range(3 if full else 1)):
            settings: dict[str, Any] = {**common.SHAKESPEARE, **scaled, "strength": strength}
            settings["sample"] = common.sample_of(sampling, rate, settings["clients"])
            settings["noise_multiplier"] = 2 * ratio if sampling == UNIFORM else ratio
            paper = {"accuracy": accuracies[STRENGTHS.index(strength)]}
            cells.append(Cell(row, settings, seed, train, paper))
    return Table(
        "dp-fed-ls-table-3",
        "DP-Fed-LS, Table 3 and Figure 5: an LSTM on Shakespeare, roles as clients",
        common.PAPER,
        scale,
        tuple(cells),
        _row,
        _curves,
        "" if full else common.QUICK_WORDS if quick else _SCALED,
        (
            "z is the noise over the sensitivity: 2 G for uniform sampling, G for Poisson. `as they count` is the paper's own "
            "accounting, `proven` the library's, for the paper's setting.",
            "The paper's row of strength 0 can be read at one place only.",
            *common.NOTES,
        ),
    )


def _row(done: Sequence[Done]) -> Row:
    settings, found = done[0].cell.settings, done[0].result
    row = {
        "sampling": settings["sampling"],
        "z": f"{settings['ratio']:g}",
        "epsilon, paper": f"{settings['printed']:.2f}",
        "as they count": f"{found['counted']:.3f}",
        "proven": rounded_up(found["proven"], 4),
    }
    runs = [one for one in done if "strength" in one.cell.settings]
    if runs:
        row["of this run"] = rounded_up(runs[0].result["epsilon"], 4)
    for strength in dict.fromkeys(one.cell.settings["strength"] for one in runs):
        cells = [one for one in runs if one.cell.settings["strength"] == strength]
        printed = cells[0].cell.paper["accuracy"]
        row[f"strength {strength:g}, paper"] = MISSING if printed is None else f"{printed:.2f}"
        row[f"strength {strength:g}, ours"] = spread([100 * one.result["accuracy"] for one in cells], "{:.2f}")
    row["minutes"] = f"{sum(one.seconds for one in done) / 60:.1f}"
    return row


def _curves(done: Sequence[Done]) -> list[Plot]:
    """Figure 5: the smallest noise of both samplings."""
    found: list[Plot] = []
    for sampling in (UNIFORM, POISSON):
        runs = [one for one in done if one.cell.row == f"{sampling}, z 1" and "strength" in one.cell.settings]
        if runs:
            found += common.curves(f"figure-5-{sampling.lower()}", f"{sampling} sampling, z 1", runs)
    return found
