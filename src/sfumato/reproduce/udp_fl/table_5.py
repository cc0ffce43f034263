"""UDP-FL, Table 5: how long training and the search for the noise take, and what is sent."""

from __future__ import annotations

import time
from typing import Any

from sfumato.pieces.law import Gaussian, Laplace
from sfumato.pieces.staircase import Staircase
from sfumato.planning.match import match
from sfumato.report.words import number
from sfumato.reproduce.show import spread, values
from sfumato.reproduce.table import Cell, Group, Row, Settings, Table, Work, at, nothing
from sfumato.reproduce.udp_fl import common

# clients, iterations: seconds for MNIST, Medical MNIST, CIFAR-10
PRINTED = {
    (50, 50): (1049.71, 644.97, 1808.67), (50, 100): (2056.34, 1328.23, 3515.08), (50, 500): (10500.80, 6482.50, 16443.23),
    (50, 1000): (20803.10, 13177.98, 31956.76), (100, 50): (1108.91, 714.02, 1873.93), (100, 100): (2196.13, 1445.75, 3653.36),
    (100, 500): (10934.62, 7064.78, 17215.17), (100, 1000): (21579.99, 14353.64, 33562.24),
}  # fmt: skip
SEARCHED = {50: 50.50, 100: 50.60, 500: 51.60, 1000: 54.30}
_BYTES = 4  # of a parameter in a message
_SCALED = "50 and 100 iterations of 50 clients only, of which a tenth takes part in a round."
_NOTES = (
    "The paper's seconds are those of its own servers (two H100, or A6000), with Flower; ours are those of one core each. "
    "Compare how they grow, not how large they are. An iteration is a round of 2 local steps with a tenth of the clients, "
    "at epsilon 8.",
    "Search: the noise of each other law that costs what Gaussian noise 1 does after so many iterations of rate 0.05 "
    "(`match`, by the final epsilon); seconds of all three. The paper searches by trial runs of training.",
    "Sent: parameters of 4 bytes, up and down, of the clients that are expected to take part. The paper's message has about "
    "2 MB.",
)
_BASES = (common.MNIST, common.MEDICAL, common.CIFAR)


def search(settings: Settings, seed: int) -> dict[str, Any]:
    """Seconds to match every other law with a Gaussian at a dimension."""
    started, like = time.perf_counter(), Gaussian(1.0)
    drawn, dimension = f"poisson:{settings['rate']:g}", settings["dimension"]
    rule: dict[str, Any] = {"sample": drawn, "rounds": settings["steps"], "delta": settings["delta"]}
    found = {
        "laplace": match(Laplace(1.0), like=like, dimension=dimension, **rule).noise_multiplier,
        "laplace-l2": match(Laplace(1.0, order=2), like=like, dimension=dimension, **rule).noise_multiplier,
        "staircase": match(Staircase(1.0), like=like, dimension=dimension, **rule).noise_multiplier,
    }
    return {"seconds": time.perf_counter() - started, "noise": found}


SEARCH = Work("sfumato.reproduce.udp_fl.search", search)


def table(scale: str) -> Table:
    """The table at a scale."""
    cells: list[Cell] = []
    sizes = at(scale, [(5, 2)], [(50, 50), (50, 100)], list(PRINTED))
    for clients, iterations in sizes:
        for place, base in enumerate(at(scale, _BASES[:1], _BASES, _BASES)):
            settings = common.sized(scale, base) | {
                "clients": clients,
                "sample": "poisson:0.1",
                "rounds": iterations,
                "epsilon": 8.0,
            }
            settings |= (
                {"records": base["records"] * 10 // clients, "evaluate_every": iterations} if scale != "quick" else {}
            )
            paper = {"seconds": PRINTED.get((clients, iterations), (None,) * 3)[place], "iterations": iterations}
            row = f"{common.label(settings)}, {clients} clients"
            cells += common.cells(scale, row, {**settings, **common.METHODS[common.GAUSSIAN]}, paper)
    for iterations in at(scale, (50,), tuple(SEARCHED), tuple(SEARCHED)):
        facts = {"rate": 0.05, "steps": 2 * iterations, "dimension": 7850, "delta": 1e-5}
        paper = {"seconds": SEARCHED[iterations], "iterations": iterations}
        cells.append(Cell("computing parameters", facts, 0, SEARCH, paper))
    title, words = "UDP-FL, Table 5: seconds and bytes", common.words(scale, _SCALED)
    return Table("udp-fl-table-5", title, common.PAPER, scale, cells, _row, nothing, words, (*_NOTES, common.NOTES[0]))


def _row(done: Group) -> Row:
    row = {"what": done[0].cell.row}
    for iterations in values(done, "iterations"):
        some = [one for one in done if one.cell.paper["iterations"] == iterations]
        theirs = some[0].cell.paper["seconds"]
        ours = [one.result.get("trained", one.result.get("seconds")) for one in some]
        row[f"{iterations} iterations, paper"] = number(theirs, 5)
        row[f"{iterations} iterations, ours"] = spread(ours, "{:.2f}")
        if (parameters := some[0].result.get("parameters")) is not None:
            sent = 2 * _BYTES * parameters * iterations * 0.1 * some[0].cell.settings["clients"]
            row[f"{iterations} iterations, MB sent"] = f"{sent / 1e6:,.0f}"
    return row
