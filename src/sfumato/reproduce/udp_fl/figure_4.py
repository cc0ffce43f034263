"""UDP-FL, Figure 4: accuracy by epsilon for every law, as published and as proven."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sfumato.report.curves import Curve, Plot
from sfumato.reproduce.show import having, minutes, values
from sfumato.reproduce.table import Cell, Group, Row, Table, at
from sfumato.reproduce.udp_fl import common

_NOTE = (
    "Pixels are centred, so the background is not 0, and L1 norms are long: on pixels from 0 to 1 the same run with Laplace "
    "noise at epsilon 2 has 76.6 % on MNIST (one seed)."
)
SCALED = (
    "MNIST with a linear model (7,850 parameters) in place of a CNN, Medical MNIST with the CNN for 40 rounds in place of "
    "150, one seed."
)


def table(scale: str) -> Table:
    """The figure at a scale."""
    epsilons = at(scale, (8.0,), common.EPSILONS, common.EPSILONS)
    bases = at(scale, (common.MNIST,), (common.MNIST, common.MEDICAL), (common.MNIST, common.MEDICAL))
    cells: list[Cell] = [cell for base in bases for cell in common.sweep(scale, base, common.METHODS, epsilons)]
    title = "UDP-FL, Figure 4: accuracy by epsilon"
    words = common.words(scale, SCALED)
    row = partial(_row, epsilons)
    return Table(
        "udp-fl-figure-4", title, common.PAPER, scale, cells, row, plots, words, (_NOTE, *common.NOTES), _findings
    )


def _row(epsilons: Sequence[float], done: Group) -> Row:
    settings, paper = done[0].cell.settings, done[0].cell.paper
    head = {"data": common.label(settings), "noise": paper["method"], "accounting": settings["accounting"]}
    return {**head, **common.by_epsilon(done, epsilons), **minutes(done)}


def plots(done: Group) -> list[Plot]:
    """Accuracy by epsilon, a picture for each data set; what has no epsilon is a level."""
    found = []
    for data in values(done, "data"):
        some = having(done, data=data)
        curves = [
            _curve(method, index, having(some, method=method)) for index, method in enumerate(values(some, "method"))
        ]
        title = f"Accuracy by epsilon, {common.label({'data': data})}"
        found.append(Plot(f"accuracy-{data}", title, common.CLAIMED, "Test accuracy", tuple(curves), percent=True))
    return found


def _curve(method: str, index: int, done: Group) -> Curve:
    epsilons = values(done, "epsilon")
    ys = [
        sum(one.result["accuracy"] for one in some) / len(some) for some in (having(done, epsilon=e) for e in epsilons)
    ]
    if epsilons == [None]:
        return Curve(method, index, common.EPSILONS, tuple(ys * len(common.EPSILONS)), level=True)
    return Curve(method, index, tuple(epsilons), tuple(ys))


def _findings(done: Group) -> list[str]:
    """What an L1 clip costs at the smallest epsilon, and what the published accounting hides."""
    found = []
    for data in values(done, "data"):
        some = having(done, data=data)
        lowest = min(epsilon for epsilon in values(some, "epsilon") if epsilon is not None)
        at_lowest = {method: having(some, method=method, epsilon=lowest) for method in values(some, "method")}
        mean = {
            method: sum(100 * one.result["accuracy"] for one in cells) / len(cells)
            for method, cells in at_lowest.items()
            if cells
        }
        lost = mean[common.GAUSSIAN] - mean["Laplace"]
        found.append(
            f"{common.label({'data': data})}, epsilon {lowest:g}: Gaussian {mean[common.GAUSSIAN]:.1f} %; Laplace under an L1 clip "
            f"loses {lost:.1f} points, the joint staircase {mean[common.GAUSSIAN] - mean['Staircase']:.1f}, Laplace under an L2 "
            f"clip {mean[common.GAUSSIAN] - mean['Laplace, L2 clip']:.1f}. As published, the staircase has "
            f"{mean['Staircase, as published']:.1f} % and Laplace {mean['Laplace, as published']:.1f} %."
        )
    return found
