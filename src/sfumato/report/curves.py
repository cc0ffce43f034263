"""The curves of a page as plain numbers: which there are, how they are thinned, and what they say in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.report.read import Record
from sfumato.report.words import SHARES, bound, label, number, share

MOST_POINTS = 400
_LARGEST = 1e100  # beyond it an axis cannot be drawn
_MOST_SPOKEN = 6


@dataclass(frozen=True)
class Curve:
    """One run's line. `index` gives its colour; `level` stands for a run that has no place on the x axis.

    `low` and `high` are the edges of a band around it, if it is a mean.
    """

    name: str
    index: int
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    level: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Plot:
    """One picture: `name` is its file, `title` its caption; `percent` where y is a share of 1, `log` where both axes are
    logarithmic.
    """

    name: str
    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    percent: bool = False
    log: bool = False

    @property
    def words(self) -> str:
        """What the picture shows, for whoever cannot see it."""
        lines = [curve for curve in self.curves if not curve.level]
        said = [self._spoken(curve, len(self.curves) > 1) for curve in lines[:_MOST_SPOKEN]]
        more = f" And {len(lines) - _MOST_SPOKEN} further runs." if len(lines) > _MOST_SPOKEN else ""
        return f"{self.title}. {' '.join(said)}{more}"

    def _spoken(self, curve: Curve, named: bool) -> str:
        value = share if self.percent else bound if self.name == "epsilon" else number
        who = f"{curve.name}: " if named else ""
        start, end = value(curve.ys[0]), value(curve.ys[-1])
        return f"{who}from {start} at {self.x.lower()} {number(curve.xs[0])} to {end} at {number(curve.xs[-1])}."


def accuracy_by_round(runs: Sequence[Record]) -> Plot | None:
    """The measure on public test data after each evaluated round; None if no run has any."""
    curves = [_curve(run, i, [(point.round, point.accuracy) for point in run.points]) for i, run in enumerate(runs)]
    name = measure(runs)
    return _plot("accuracy", f"{name} by round", "Round", name, curves, _percent(runs))


def epsilon_by_round(runs: Sequence[Record]) -> Plot | None:
    """What had been spent after each round; None where nothing is proven."""
    proven = [(index, run) for index, run in enumerate(runs) if run.proven]
    curves = [_curve(run, i, [(point.round, point.epsilon) for point in run.points]) for i, run in proven]
    return _plot("epsilon", "Epsilon by round", "Round", "Epsilon", curves)


def accuracy_against_epsilon(runs: Sequence[Record]) -> Plot | None:
    """What each epsilon bought. A run that proves none is a level at its last accuracy; None if no run proves any."""
    curves = []
    for index, run in enumerate(runs):
        seen = [point.accuracy for point in run.points if point.accuracy is not None]
        if run.proven:
            curves.append(_curve(run, index, [(point.epsilon, point.accuracy) for point in run.points]))
        elif seen and abs(seen[-1]) < _LARGEST:
            curves.append(Curve(run.name, index, (0.0,), (seen[-1],), level=True))
    name = measure(runs)
    plot = _plot("accuracy-against-epsilon", f"{name} against epsilon", "Epsilon", name, curves, _percent(runs))
    return plot if plot and any(not curve.level for curve in plot.curves) else None


def measure(runs: Sequence[Record]) -> str:
    """The name of what was measured, as a label."""
    return " or ".join(map(label, dict.fromkeys(run.measure for run in runs)))


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most so many points that draw the same line: the lowest and the highest of each stretch, and both ends."""
    if len(points) <= most:
        return list(points)
    stretches = most // 2 - 1
    kept = {0, len(points) - 1}
    for stretch in range(stretches):
        inside = range(stretch * len(points) // stretches, (stretch + 1) * len(points) // stretches)
        kept |= {min(inside, key=lambda i: points[i][1]), max(inside, key=lambda i: points[i][1])}
    return [points[index] for index in sorted(kept)]


def _curve(run: Record, index: int, points: Sequence[tuple[float | None, float | None]]) -> Curve:
    known = [(float(x), float(y)) for x, y in points if x is not None and y is not None]
    kept = thinned([(x, y) for x, y in known if abs(x) < _LARGEST and abs(y) < _LARGEST])
    return Curve(run.name, index, tuple(x for x, _ in kept), tuple(y for _, y in kept))


def _plot(name: str, title: str, x: str, y: str, curves: Sequence[Curve], percent: bool = False) -> Plot | None:
    drawn = tuple(curve for curve in curves if curve.xs)
    return Plot(name, title, x, y, drawn, percent) if drawn else None


def _percent(runs: Sequence[Record]) -> bool:
    values = [point.accuracy for run in runs for point in run.points if point.accuracy is not None]
    return all(run.measure in SHARES for run in runs) and all(0.0 <= value <= 1.0 for value in values)
