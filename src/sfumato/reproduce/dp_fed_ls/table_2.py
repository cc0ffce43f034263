"""DP-Fed-LS, the privacy columns of Table 2 (CNN on SVHN): no training, as its data are not at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato import recipes
from sfumato.account.papers.dp_fed_ls import dp_fed_ls_table_poisson, dp_fed_ls_table_uniform
from sfumato.guarantee import rounded_up
from sfumato.reproduce.client_level import noise_for, proven
from sfumato.reproduce.dp_fed_ls import common
from sfumato.reproduce.dp_fed_ls.common import POISSON, UNIFORM
from sfumato.reproduce.table import Cell, Done, Row, Table

# noise multiplier: epsilon with uniform sampling, with Poisson sampling
PRINTED = {1.5: (5.23, 2.56), 1.3: (6.34, 3.19), 1.1: (7.84, 4.24), 1.0: (8.66, 5.07)}
SVHN: dict[str, Any] = {"clients": 2000, "rate": 0.05, "rounds": 200, "delta": 2000**-1.1}
NOTES = (
    "z is the noise over the sensitivity: 2 G for uniform sampling (a client is replaced), G for Poisson (one comes or goes). "
    "`as they count` is the paper's own accounting, which reproduces every printed value; `proven` is the library's, which is "
    "tighter. If uniform sampling was run with noise z G, as one reading of the paper has it, only the column `if z G` holds.",
    "`enough` is the noise that is proven enough for the printed epsilon, over the paper's.",
)


def columns(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The epsilons of one noise multiplier."""
    clients, rate, rounds, delta = (settings[name] for name in ("clients", "rate", "rounds", "delta"))
    ratio, uniform = settings["ratio"], settings["sampling"] == UNIFORM
    counted = (dp_fed_ls_table_uniform if uniform else dp_fed_ls_table_poisson)(rate, ratio, rounds, delta)
    sample = common.sample_of(settings["sampling"], rate, clients)

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


def cells(
    settings: Mapping[str, Any], printed: Mapping[float, tuple[float, float]], samplings: Sequence[str]
) -> list[Cell]:
    """One cell for each printed epsilon."""
    return [
        Cell(
            f"{sampling}, z {ratio:g}",
            {**settings, "sampling": sampling, "ratio": ratio, "printed": printed[ratio][samplings.index(sampling)]},
            0,
            columns,
        )
        for sampling in samplings
        for ratio in printed
    ]


def table(scale: str) -> Table:
    """The same at every scale: seconds."""
    return Table(
        "dp-fed-ls-table-2",
        "DP-Fed-LS, Table 2: the privacy columns (SVHN, 2,000 clients, rate 0.05, 200 rounds)",
        common.PAPER,
        scale,
        tuple(cells(SVHN, PRINTED, (UNIFORM, POISSON))),
        row,
        lambda done: [],
        "The privacy columns only, at every scale: SVHN is not at hand, so nothing is trained.",
        NOTES,
    )


def row(done: Sequence[Done]) -> Row:
    """One printed epsilon and ours."""
    settings, found = done[0].cell.settings, done[0].result
    return {
        "sampling": settings["sampling"],
        "z": f"{settings['ratio']:g}",
        "epsilon, paper": f"{settings['printed']:.2f}",
        "as they count": f"{found['counted']:.3f}",
        "proven": rounded_up(found["proven"], 4),
        "if z G": "" if found["if z G"] is None else rounded_up(found["if z G"], 4),
        "enough": f"{found['enough']:.3f}",
    }
