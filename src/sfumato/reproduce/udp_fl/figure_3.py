"""UDP-FL, Figure 3: more clients, and more records in each step."""

from __future__ import annotations

from itertools import product

from sfumato.report.curves import Plot
from sfumato.reproduce.show import by_round, having, minutes, values
from sfumato.reproduce.table import Cell, Group, Row, Table, at, groups
from sfumato.reproduce.udp_fl import common

EPSILON = 8.0
CLIENTS, RATES = (50, 100, 150, 200), (0.01, 0.05, 0.1, 0.5)
_METHODS = (common.GAUSSIAN, "Staircase", "Staircase, as published")
_SCALED = "MNIST only, with a linear model in place of a CNN, one seed."
_NOTES = (
    "The paper prints no epsilon for this figure; here it is 8. A tenth of the clients takes part in a round, by chance "
    "(everybody may see who), and is accounted as a mixture; the paper draws a tenth and does not say how it counts.",
    "More clients: the same records are shared out, so each has fewer. The noise of a step stays, its batch shrinks.",
)


def table(scale: str) -> Table:
    """The figure at a scale."""
    cells: list[Cell] = []
    settings = common.sized(scale, common.MNIST) | {"epsilon": EPSILON}
    pool = at(scale, 1400, 60_000, 60_000)
    for method, clients in product(_METHODS, at(scale, (8,), CLIENTS, CLIENTS)):
        own = {
            **settings,
            **common.METHODS[method],
            "clients": clients,
            "sample": "poisson:0.1",
            "records": pool // clients,
        }
        paper = {"method": method, "panel": "clients"}
        cells += common.cells(scale, f"{clients} clients, {method}", own, paper)
    for method, rate in product(_METHODS, at(scale, (0.2,), RATES, RATES)):
        own = {**settings, **common.METHODS[method], "batch": f"poisson:{rate:g}"}
        cells += common.cells(scale, f"rate {rate:g}, {method}", own, {"method": method, "panel": "rate"})
    title, words = "UDP-FL, Figure 3: clients and sampling rates, MNIST at epsilon 8", common.words(scale, _SCALED)
    notes = (*_NOTES, *common.NOTES)
    return Table("udp-fl-figure-3", title, common.PAPER, scale, cells, _row, _plots, words, notes)


def _row(done: Group) -> Row:
    settings, paper, result = done[0].cell.settings, done[0].cell.paper, done[0].result
    return {
        "clients": str(settings["clients"]),
        "taking part": settings["sample"],
        "batch": settings["batch"],
        "noise": paper["method"],
        "accounting": settings["accounting"],
        "noise multiplier": f"{result['noise']:.3f}",
        "accuracy": common.measured(done),
        "really": common.really(done),
        **minutes(done),
    }


def _plots(done: Group) -> list[Plot]:
    found = []
    for panel, fact in (("clients", "clients"), ("rate", "batch")):
        some = having(done, panel=panel, method=common.GAUSSIAN)
        lines = {f"{group[0].cell.settings[fact]}": group for group in groups(some)}
        found += by_round(f"by-{panel}", f"Test accuracy by {panel}, Gaussian", "Test accuracy", lines)
    return found if values(done, "panel") else []
