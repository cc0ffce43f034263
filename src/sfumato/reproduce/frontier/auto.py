"""`--auto` beside the setting that each recipe is shipped with, at one epsilon and delta on each data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sfumato.report.words import bound
from sfumato.reproduce.frontier.ours import TRAIN
from sfumato.reproduce.frontier.side_by_side import ranged
from sfumato.reproduce.show import accuracies
from sfumato.reproduce.table import Cell, Group, Row, Table, at, groups, nothing, seeded

_EPSILON = 2.0
_LSTM = {"model": "char-lstm:64x1", "options": {"steps": 20}, "task": "next-character"}
# Data sets, who holds them, and what the shipped setting needs besides its defaults.
_TASKS: tuple[tuple[str, str, float, Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("digits", "dp-fedavg", 200**-1.1, {"clients": 200, "records_per_client": 7}, {}),
    ("mnist", "dp-fedavg", 100**-1.1, {"clients": 100}, {}),
    ("usps", "dp-fedavg", 100**-1.1, {"clients": 100}, {}),
    ("emnist-letters", "dp-fedavg", 1 / 500, {"clients": 500, "records_per_client": 120, "split": "dirichlet:0.6"}, {}),
    ("cifar10", "dp-fedavg", 100**-1.1, {"clients": 100}, {}),
    ("shakespeare", "dp-fedavg", 100**-1.1, {"clients": 100, "split": "natural", "task": "next-character"}, _LSTM),
    ("digits", "dp-sgd", 1e-4, {}, {}),
    ("mnist", "dp-sgd", 1e-5, {}, {}),
)  # fmt: skip
_NOTES = (
    "No public records but the test splits: --auto has features that need no data.",
    "Where features lose: text and tables of few columns have none that are known without data. Text becomes the last three "
    "characters of a window, which a linear model reads; numbers that are no pictures are only brought to one norm.",
    "Shakespeare as shipped would be two layers of 256 units and five passes over each role's thousands of windows; here it is one "
    "layer of 64 and 20 steps, which takes minutes instead of hours.",
    "CIFAR-10 is as many pictures as the folder has (with 20,000 in place of 50,000, a subset).",
)


def table(scale: str) -> Table:
    """All data sets over several seeds; quick has digits only."""
    tasks = at(scale, _TASKS[:1], _TASKS, _TASKS)
    cells: list[Cell] = []
    for name, recipe, delta, data, shipped in tasks:
        asked = {"recipe": recipe, "epsilon": _EPSILON, "delta": delta, "name": name, **data}
        for what, more in (("as shipped", shipped), ("--auto", {"seconds": 10.0})):
            paper = {"task": f"{name}, {recipe}", "what": what}
            seeds = at(scale, 1, 1 if name == "shakespeare" else 3, 5)
            cells += seeded(seeds, f"{name}, {recipe}, {what}", {**asked, **more}, TRAIN, paper)
    words = at(scale, "Quick: digits, one seed.", "3 seeds, one for Shakespeare.", "5 seeds.")
    title = f"--auto beside the shipped settings, epsilon {_EPSILON:g}"
    return Table(
        "frontier-auto",
        title,
        "No paper: this library with itself",
        scale,
        cells,
        _row,
        nothing,
        words,
        _NOTES,
        _findings,
    )


def _row(done: Group) -> Row:
    paper = done[0].cell.paper
    return {
        "data, recipe": paper["task"],
        "setting": paper["what"],
        "delta": f"{done[0].cell.settings['delta']:.3g}",
        "epsilon": bound(max(one.result["epsilon"] for one in done)),
        "accuracy": ranged(accuracies(done)),
        "seconds of training": ranged([one.result["seconds"] for one in done], "{:.1f}"),
        "seconds before": ranged([one.result["preparing"] for one in done], "{:.1f}"),
    }


def _findings(done: Group) -> list[str]:
    """Whether --auto is above the shipped setting on each."""
    means = {
        (group[0].cell.paper["task"], group[0].cell.paper["what"]): float(np.mean(accuracies(group)))
        for group in groups(done)
    }
    found = []
    for task in dict.fromkeys(task for task, _ in means):
        gain = means[task, "--auto"] - means[task, "as shipped"]
        found.append(
            f"{task}: --auto is {abs(gain):.2f} points {'above' if gain > 0 else 'BELOW'} the shipped setting."
        )
    return found
