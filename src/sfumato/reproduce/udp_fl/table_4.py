"""UDP-FL, Table 4: accuracy on CIFAR-10 by epsilon, beside what the paper prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sfumato.reproduce.show import having, minutes, printed
from sfumato.reproduce.table import Group, Row, Settings, Table, at
from sfumato.reproduce.udp_fl import common
from sfumato.reproduce.udp_fl.figure_2 import METHODS, SCALED
from sfumato.reproduce.udp_fl.figure_4 import plots

# test accuracy at epsilon 2, 4, 6 and 8; 0.871 without privacy
PRINTED = {
    "gaussian": (70.4, 71.4, 71.9, 74.2),
    "laplace": (47.5, 46.1, 50.6, 63.8),
    "staircase": (63.3, 69.1, 73.3, 78.0),
}
FREE = 87.1
_NOTE = (
    "The paper's values are those of ResNet-18 on all of CIFAR-10: compare orders, not numbers. It says that at epsilon 2 "
    "the Gaussian and at 6 and 8 the staircase is best."
)


def table(scale: str) -> Table:
    """The table at a scale."""
    epsilons = at(scale, (8.0,), common.EPSILONS, common.EPSILONS)
    cells = [
        replace(cell, paper={**cell.paper, "accuracy": _printed(cell.settings)})
        for cell in common.sweep(scale, common.CIFAR, METHODS, epsilons)
    ]
    title, words = "UDP-FL, Table 4: CIFAR-10 by epsilon", common.words(scale, SCALED)
    row = partial(_row, epsilons)
    return Table("udp-fl-table-4", title, common.PAPER, scale, cells, row, plots, words, (_NOTE, *common.NOTES))


def _printed(settings: Settings) -> float | None:
    """What the paper has for a law at an epsilon, whichever way it is accounted for here."""
    if settings["epsilon"] is None:
        return FREE
    known = PRINTED.get(settings["law"].removesuffix("-as-published"))
    return None if known is None else known[common.EPSILONS.index(settings["epsilon"])]


def _row(epsilons: Sequence[float], done: Group) -> Row:
    settings, paper, ours = done[0].cell.settings, done[0].cell.paper, common.by_epsilon(done, epsilons)
    found = {"noise": paper["method"], "accounting": settings["accounting"]}
    for epsilon in (*epsilons, None):
        name, some = common.name_of(epsilon), having(done, epsilon=epsilon)
        found[f"{name}, paper"] = printed(some[0].cell.paper["accuracy"]) if some else ""
        found[f"{name}, ours"] = ours[name]
        found |= {} if epsilon is None else {f"really, at {epsilon:g}": ours[f"really, at {epsilon:g}"]}
    return {**found, **minutes(done)}
