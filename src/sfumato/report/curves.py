"""What a picture shows as plain numbers: which curves there are, how they are thinned, and what they say in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.report.words import bound, number, share, share_down

MOST_POINTS = 400
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
    logarithmic, `floor` where both are shares of 1 and y is a lower bound.
    """

    name: str
    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    percent: bool = False
    log: bool = False
    floor: bool = False

    @property
    def words(self) -> str:
        """What the picture shows, for whoever cannot see it."""
        lines = [curve for curve in self.curves if not curve.level]
        said = [self._spoken(curve, len(self.curves) > 1) for curve in lines[:_MOST_SPOKEN]]
        more = f" And {len(lines) - _MOST_SPOKEN} further runs." if len(lines) > _MOST_SPOKEN else ""
        return f"{self.title}. {' '.join(said)}{more}"

    def said_x(self, value: float) -> str:
        """A place on the x axis in words."""
        if self.floor:
            return f"{number(100 * value)}\N{NO-BREAK SPACE}%"
        return bound(value) if self.x == "Epsilon" else number(value)

    def said_y(self, value: float) -> str:
        """A value in words: an epsilon is rounded up, and a floor down."""
        if self.floor:
            return share_down(value)
        return share(value) if self.percent else bound(value) if self.name == "epsilon" else number(value)

    def _spoken(self, curve: Curve, named: bool) -> str:
        who = f"{curve.name}: " if named else ""
        start, end = self.said_y(curve.ys[0]), self.said_y(curve.ys[-1])
        return (
            f"{who}from {start} at {self.x.lower()} {self.said_x(curve.xs[0])} to {end} at {self.said_x(curve.xs[-1])}."
        )


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
