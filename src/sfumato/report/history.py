"""The curves of runs: what was measured and what was spent round by round, and how well anybody can tell in the end.

Runs that differ in their seeds only are one curve, their mean, in a band from the smallest to the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sfumato.report.curves import Curve, Plot, thinned
from sfumato.report.groups import Group, grouped
from sfumato.report.read import Point, Record
from sfumato.report.telling import telling
from sfumato.report.words import SHARES, label

_LARGEST = 1e100  # beyond it an axis cannot be drawn
_GUESSING = Curve("who guesses", -1, (0.0, 1.0), (1.0, 0.0))  # in the last colour, with the last dashes
Pick = Callable[[Point], float | None]


def accuracy_by_round(runs: Sequence[Record]) -> Plot | None:
    """What was measured on public test data; None if nothing was."""
    name = measure(runs)
    curves = [_curve(group, _round, _accuracy) for group in grouped(runs)]
    return _plot("accuracy", f"{name} by round", "Round", name, curves, _percent(runs))


def loss_by_round(runs: Sequence[Record]) -> Plot | None:
    """The loss on public test data; None if it was not measured, or is what stands for the accuracy."""
    if all(run.measure == "loss" for run in runs):
        return None
    curves = [_curve(group, _round, lambda point: point.loss) for group in grouped(runs)]
    return _plot("loss", "Loss by round, on public test data", "Round", "Loss", curves)


def epsilon_by_round(runs: Sequence[Record]) -> Plot | None:
    """What was spent; None if nothing is proven."""
    curves = [_curve(group, _round, _epsilon) for group in grouped(runs) if group.proven]
    return _plot("epsilon", "Epsilon by round", "Round", "Epsilon", curves)


def accuracy_against_epsilon(runs: Sequence[Record]) -> Plot | None:
    """What each epsilon bought. A run that proves none is a level at its last accuracy; None if no run proves any."""
    curves = []
    for group in grouped(runs):
        if group.proven:
            curves.append(_curve(group, _epsilon, _accuracy))
        elif (last := _curve(group, _round, _accuracy)).ys:
            curves.append(Curve(group.name, group.index, (0.0,), last.ys[-1:], level=True))
    name = measure(runs)
    plot = _plot("accuracy-against-epsilon", f"{name} against epsilon", "Epsilon", name, curves, _percent(runs))
    return plot if plot and any(not curve.level for curve in plot.curves) else None


def tradeoff(runs: Sequence[Record]) -> Plot | None:
    """What nobody can avoid who tells a unit's presence; None if nothing is proven, or no ledger says what happened."""
    curves = []
    for group in grouped(runs):
        known = [telling(run.event, run.price) for run in group.runs] if group.proven else []
        told = [found.curve for found in known if found is not None]
        if told and len(told) == len(known):
            alarms = tuple(at for at, _ in told[0])  # the same for all
            floors = tuple(min(points) for points in zip(*([floor for _, floor in one] for one in told), strict=True))
            curves.append(Curve(group.name, group.index, alarms, floors))
    if not curves:
        return None
    title, x, y = "How well anybody can tell", "False alarms", "Missed, at least"
    return Plot("tradeoff", title, x, y, (*curves, _GUESSING), percent=True, floor=True)


def measure(runs: Sequence[Record]) -> str:
    """The name of what was measured, as a label."""
    return " or ".join(map(label, dict.fromkeys(run.measure for run in runs)))


def _round(point: Point) -> float:
    return float(point.round)


def _accuracy(point: Point) -> float | None:
    return point.accuracy


def _epsilon(point: Point) -> float | None:
    return point.epsilon


def _curve(group: Group, x: Pick, y: Pick) -> Curve:
    """The mean at the rounds for which every run of the group has both; an epsilon that differs is the largest of them."""
    each = [_known(run, x, y) for run in group.runs]
    rounds = [round for round in each[0] if all(round in known for known in each)]
    across = {round: [known[round] for known in each] for round in rounds}
    means = [(max(x for x, _ in here), sum(y for _, y in here) / len(here)) for here in across.values()]
    bands = dict(zip(means, ([y for _, y in here] for here in across.values()), strict=True))
    kept = thinned(means)
    xs, ys = tuple(x for x, _ in kept), tuple(y for _, y in kept)
    low, high = (tuple(edge(bands[point]) for point in kept) if group.several else () for edge in (min, max))
    return Curve(group.name, group.index, xs, ys, low=low, high=high)


def _known(run: Record, x: Pick, y: Pick) -> dict[int, tuple[float, float]]:
    pairs = ((point.round, x(point), y(point)) for point in run.points)
    whole = {round: (float(a), float(b)) for round, a, b in pairs if a is not None and b is not None}
    return {round: (a, b) for round, (a, b) in whole.items() if abs(a) < _LARGEST and abs(b) < _LARGEST}


def _plot(name: str, title: str, x: str, y: str, curves: Sequence[Curve], percent: bool = False) -> Plot | None:
    drawn = tuple(curve for curve in curves if curve.xs)
    return Plot(name, title, x, y, drawn, percent) if drawn else None


def _percent(runs: Sequence[Record]) -> bool:
    values = [point.accuracy for run in runs for point in run.points if point.accuracy is not None]
    return all(run.measure in SHARES for run in runs) and all(0.0 <= value <= 1.0 for value in values)
