"""UDP-FL, Figure 2: CIFAR-10 at epsilon 2 and 8, by round."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sfumato.report.curves import Plot
from sfumato.reproduce.show import by_round, having, minutes, values
from sfumato.reproduce.table import Group, Row, Table, at, groups
from sfumato.reproduce.udp_fl import common

METHODS = {name: own for name, own in common.METHODS.items() if name not in ("NbAFL", "Laplace, L2 clip")}
SCALED = (
    "20,000 training pictures in place of 50,000, a CNN of 122,570 parameters in place of ResNet-18, 60 rounds in place of "
    "150, one seed."
)


def table(scale: str) -> Table:
    """The figure at a scale; its cells are some of Table 4's."""
    epsilons = at(scale, (8.0,), (2.0, 8.0), (2.0, 8.0))
    cells = common.sweep(scale, common.CIFAR, METHODS, epsilons)
    title, words = "UDP-FL, Figure 2: CIFAR-10 at epsilon 2 and 8", common.words(scale, SCALED)
    return Table(
        "udp-fl-figure-2", title, common.PAPER, scale, cells, partial(_row, epsilons), _plots, words, common.NOTES
    )


def _row(epsilons: Sequence[float], done: Group) -> Row:
    settings, paper = done[0].cell.settings, done[0].cell.paper
    return {
        "noise": paper["method"],
        "accounting": settings["accounting"],
        **common.by_epsilon(done, epsilons),
        **minutes(done),
    }


def _plots(done: Group) -> list[Plot]:
    found, free = [], having(done, epsilon=None)
    for epsilon in values(done, "epsilon"):
        if epsilon is not None:
            lines = {group[0].cell.paper["method"]: group for group in groups([*having(done, epsilon=epsilon), *free])}
            title = f"Test accuracy by round, epsilon {epsilon:g}"
            found += by_round(f"accuracy-epsilon-{epsilon:g}", title, "Test accuracy", lines)
    return found
