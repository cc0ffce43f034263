"""AE-DPFL, where voting wins and where it does not: by epsilon, by the number of queries, and by the number of clients."""

from __future__ import annotations

import numpy as np

from sfumato.report.curves import Curve, Plot
from sfumato.reproduce.ae_dpfl import common
from sfumato.reproduce.show import accuracies, having, values
from sfumato.reproduce.table import Cell, Group, Settings, Table, at, seeded

EPSILONS = (0.5, 1.0, 1.56, 2.74, 5.0, 10.0)
QUERIES = (100, 250, 500, 1000, 2000)
CLIENTS = (50, 100, 200, 500, 1000)
STEPS = "DP-FedAvg, 10 local steps"
NAMES = (common.KNN, common.PATE, common.FEDAVG)
_NOTES = (
    "By epsilon: 100 clients, 500 queries. By queries: the same epsilon of 2.74, so more queries have more noise. By clients: "
    "the 60,000 digits are shared out, so more clients have fewer each; epsilon 2.74.",
    "DP-FedAvg has the settings that were chosen at 100 clients and epsilon 2.74 everywhere, so elsewhere better ones may exist. "
    "One: with as many local steps at every size, 10, for which small clients take more than one epoch.",
)


def table(scale: str) -> Table:
    """The table at a scale."""
    cells: list[Cell] = []
    seeds = at(scale, 1, 3, 5)

    def add(panel: str, name: str, own: Settings) -> None:
        settings = common.sized(scale, {**common.METHODS.get(name, {}), **own})
        row = f"{panel}, {name}, {settings['clients']}, {settings['queries']}, {settings['epsilon']:g}"
        cells.extend(seeded(seeds, row, settings, common.TRAIN, {"method": name, "panel": panel}))

    for epsilon in at(scale, (4.0,), EPSILONS, EPSILONS):
        for name in NAMES:
            add("epsilon", name, {"epsilon": epsilon})
    for queries in at(scale, (), QUERIES, QUERIES):
        for name in (common.KNN, common.PATE):
            add("queries", name, {"epsilon": 2.74, "queries": queries})
    for clients in at(scale, (), CLIENTS, CLIENTS):
        for name in NAMES:
            add("clients", name, {"epsilon": 2.74, "clients": clients})
        if clients > 200:
            steps = {**common.METHODS[common.FEDAVG], "epochs": clients // 100}
            add("clients", STEPS, {**steps, "epsilon": 2.74, "clients": clients})
    title = "AE-DPFL: where voting wins"
    words = common.words(scale, "Random features in place of AlexNet, 3 seeds.")
    return Table(
        "ae-dpfl-crossing",
        title,
        common.PAPER,
        scale,
        cells,
        common.row,
        _plots,
        words,
        (*common.NOTES, *_NOTES),
        _findings,
    )


def _curves(done: Group, fact: str) -> dict[str, tuple[list[float], list[float]]]:
    found = {}
    for name in values(done, "method"):
        some = having(done, method=name)
        xs = sorted(values(some, fact))
        found[name] = (xs, [float(np.mean(accuracies(having(some, **{fact: x})))) for x in xs])
    return found


def _plots(done: Group) -> list[Plot]:
    plots = []
    for fact in values(done, "panel"):
        lines = _curves(having(done, panel=fact), fact)
        curves = tuple(
            Curve(name, index, tuple(xs), tuple(y / 100 for y in ys))
            for index, (name, (xs, ys)) in enumerate(lines.items())
        )
        plots.append(
            Plot(f"by-{fact}", f"Accuracy by {fact}", fact.capitalize(), "Test accuracy", curves, percent=True)
        )
    return plots


def _findings(done: Group) -> list[str]:
    """Between which values DP-FedAvg overtakes the better of the votes."""
    found = []
    for fact in ("epsilon", "clients"):
        lines = _curves(having(done, panel=fact), fact)
        if len(lines) < 3:
            continue
        xs, usual = lines[common.FEDAVG]
        more = dict(zip(*lines.get(STEPS, ([], [])), strict=True))
        fedavg = [max(value, more.get(x, value)) for x, value in zip(xs, usual, strict=True)]
        best = np.maximum(lines[common.KNN][1], lines[common.PATE][1])
        above, below = (
            ", ".join(f"{x:g}" for x, a, b in zip(xs, best, fedavg, strict=True) if (a > b) == wins) or "none"
            for wins in (True, False)
        )
        found.append(f"By {fact}: voting is above DP-FedAvg at {above}, and not at {below}.")
    return found
