"""DP-Fed-LS, the privacy columns of Table 2 (CNN on SVHN): no training, as its data are not at hand."""

from __future__ import annotations

from itertools import product
from typing import Any

from sfumato import recipes
from sfumato.account.papers.dp_fed_ls import dp_fed_ls_table_poisson, dp_fed_ls_table_uniform
from sfumato.report.words import bound
from sfumato.reproduce.client_level import noise_for
from sfumato.reproduce.dp_fed_ls.common import PAPER, POISSON, UNIFORM, sample_of
from sfumato.reproduce.table import Cell, Group, Row, Settings, Table, Work, nothing
from sfumato.reproduce.training import proven

# noise multiplier: epsilon with uniform sampling, with Poisson sampling
PRINTED = {1.5: (5.23, 2.56), 1.3: (6.34, 3.19), 1.1: (7.84, 4.24), 1.0: (8.66, 5.07)}
_NOTES = (
    "z is the noise over the sensitivity: 2 G for uniform sampling (a client is replaced), G for Poisson (one comes or goes). "
    "`as they count` is the paper's own accounting, which reproduces every printed value; `proven` is the library's, which is "
    "tighter. If uniform sampling was run with noise z G, as one reading of the paper has it, only the column `if z G` holds.",
    "`enough` is the noise that is proven enough for the printed epsilon, over the paper's.",
)


def columns(settings: Settings, seed: int) -> dict[str, Any]:
    """The epsilons of one noise multiplier."""
    clients, rate, rounds, delta = (settings[name] for name in ("clients", "rate", "rounds", "delta"))
    ratio, uniform = settings["ratio"], settings["sampling"] == UNIFORM
    counted = (dp_fed_ls_table_uniform if uniform else dp_fed_ls_table_poisson)(rate, ratio, rounds, delta)
    sample = sample_of(settings["sampling"], rate, clients)

    def of(noise: float) -> float | None:
        round = recipes.build("dp-fedavg", clients, {"sample": sample, "noise_multiplier": noise})
        return proven(round.derive(population=clients, dimension=1).primary.world, rounds, delta)

    used = 2 * ratio if uniform else ratio
    return {
        "counted": counted,
        "proven": of(used),
        "if z G": of(ratio) if uniform else None,
        "enough": noise_for(sample, clients, rounds, settings["printed"], delta) / used,
    }


COLUMNS = Work("sfumato.reproduce.dp_fed_ls_table_2.columns", columns)


def privacy(sampling: str, ratio: float, epsilon: float, clients: int, rate: float, rounds: int) -> Cell:
    """The cell of one printed epsilon."""
    settings = {"clients": clients, "rate": rate, "rounds": rounds, "delta": clients**-1.1}
    settings |= {"sampling": sampling, "ratio": ratio, "printed": epsilon}
    return Cell(f"{sampling}, z {ratio:g}", settings, 0, COLUMNS)


def row(done: Group) -> Row:
    """One printed epsilon, as the paper counts it, and what is proven."""
    settings, found = done[0].cell.settings, done[0].result
    return {
        "sampling": settings["sampling"],
        "z": f"{settings['ratio']:g}",
        "epsilon, paper": f"{settings['printed']:.2f}",
        "as they count": f"{found['counted']:.3f}",
        "proven": bound(found["proven"]),
    }


def _row(done: Group) -> Row:
    found = done[0].result
    otherwise = "" if found["if z G"] is None else bound(found["if z G"])
    return {**row(done), "if z G": otherwise, "enough": f"{found['enough']:.3f}"}


def table(scale: str) -> Table:
    """The same at every scale: seconds."""
    title = "DP-Fed-LS, Table 2: the privacy columns (SVHN, 2,000 clients, rate 0.05, 200 rounds)"
    words = "The privacy columns only, at every scale: SVHN is not at hand, so nothing is trained."
    cells = [
        privacy(sampling, ratio, PRINTED[ratio][place], 2000, 0.05, 200)
        for (place, sampling), ratio in product(enumerate((UNIFORM, POISSON)), PRINTED)
    ]
    return Table("dp-fed-ls-table-2", title, PAPER, scale, cells, _row, nothing, words, _NOTES)
