"""What rows and pictures of several tables have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sfumato.report.curves import Curve, Plot
from sfumato.report.words import MISSING
from sfumato.reproduce.table import Done, Group, Row


def having(done: Group, **facts: Any) -> list[Done]:
    """The cells whose settings, or the paper's words for them, are these."""
    return [one for one in done if facts.items() <= one.facts.items()]


def values(done: Group, name: str) -> list[Any]:
    """The values that a fact has, in the order of the table."""
    return list(dict.fromkeys(one.facts[name] for one in done))


def printed(value: float | None) -> str:
    """A number of the paper, if there is one."""
    return MISSING if value is None else f"{value:.2f}"


def spread(values: Sequence[float | None], words: str = "{:.4g}") -> str:
    """The mean over seeds, and their standard deviation if there are several.

    >>> spread([1.0, 3.0]), spread([2.0]), spread([None, 2.0])
    ('2 ± 1.41', '2', '–')
    """
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return MISSING
    mean = words.format(float(np.mean(known)))
    return mean if len(known) == 1 else f"{mean} ± {float(np.std(known, ddof=1)):.3g}"


def accuracies(done: Group, name: str = "accuracy") -> list[float]:
    """A share of right answers for each cell, in percent."""
    return [100 * one.result[name] for one in done]


def accuracy(done: Group) -> str:
    """Ours, over seeds."""
    return spread(accuracies(done), "{:.2f}")


def beside(done: Group, by: str, theirs: str = "paper") -> Row:
    """The paper's accuracy and ours for each value of a fact that differs within the row."""
    row = {}
    for value in values(done, by):
        cells = having(done, **{by: value})
        row[f"{by} {value:g}, {theirs}"] = printed(cells[0].cell.paper.get("accuracy"))
        row[f"{by} {value:g}, ours"] = accuracy(cells)
    return row


def minutes(done: Group) -> Row:
    """The time of all cells of a row, as its last column."""
    return {"minutes": f"{sum(one.seconds for one in done) / 60:.1f}"}


def by_round(name: str, title: str, y: str, lines: Mapping[str, Group], place: int = 2) -> list[Plot]:
    """A picture of one column of the curves, with a line for each name that has cells; none without any."""
    named = [(label, cells) for label, cells in lines.items() if cells]
    curves = tuple(_banded(label, index, cells, place) for index, (label, cells) in enumerate(named))
    return [Plot(name, title, "Round", y, curves, percent=place == 2)] if curves else []


def _banded(name: str, index: int, done: Group, place: int) -> Curve:
    """The mean over seeds, with the standard deviation as a band if there are several."""
    xs = tuple(float(point[0]) for point in done[0].result["curve"])
    ys = np.array([[point[place] for point in one.result["curve"]] for one in done], dtype=np.float64)
    mean, off = ys.mean(0), ys.std(0, ddof=min(1, len(ys) - 1))
    band = [] if len(ys) == 1 else [tuple((mean - off).tolist()), tuple((mean + off).tolist())]
    return Curve(name, index, xs, tuple(mean.tolist()), False, *band)
