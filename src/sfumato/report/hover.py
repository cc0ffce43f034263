"""Values where the pointer is, without a script: each picture is divided into columns, and a column that is pointed at
shows what its curves are there. A finger does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sfumato.report.curves import Curve, Plot
from sfumato.report.markup import Html, element

_MOST_COLUMNS = 60
_MOST_VALUES = 240  # in all columns together, so that a page of many runs stays small
_MOST_LINES = 12
_LINE = 13.0  # the height of a line of text, in the picture's own units
_LETTER = 5.6  # how wide one is at most on the average, as nothing here can measure text
_LONGEST = 24

Place = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Box:
    """Where in a picture the curves are; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float


def columns(plot: Plot, box: Box, place: Place) -> Html:
    """The columns of a picture; `place` says where a value lies in it."""
    curves = [curve for curve in plot.curves if not curve.level and curve.index >= 0]
    at = _spread(sorted({x for curve in curves for x in curve.xs}), len(curves), lambda x: place(x, 0.5)[0])
    edges = [(place(a, 0.5)[0] + place(b, 0.5)[0]) / 2 for a, b in pairwise(at)]
    reach = zip(at, [box.left, *edges], [*edges, box.right], strict=True)
    shown = (_column(plot, curves, x, box, place, left, right) for x, left, right in reach)
    return element("g", *shown, class_="columns")


def _spread(xs: Sequence[float], curves: int, across: Callable[[float], float]) -> list[float]:
    """Few enough of them, as evenly over the picture as they come."""
    most = max(12, min(_MOST_COLUMNS, _MOST_VALUES // max(curves, 1)))
    if len(xs) <= most:
        return list(xs)
    first, last = across(xs[0]), across(xs[-1])
    wanted = (first + (last - first) * step / (most - 1) for step in range(most))
    return list(dict.fromkeys(min(xs, key=lambda x: abs(across(x) - goal)) for goal in wanted))


def _column(plot: Plot, curves: Sequence[Curve], x: float, box: Box, place: Place, left: float, right: float) -> Html:
    line = place(x, 0.5)[0]
    near = [(curve, _nearest(curve, place, line, left, right)) for curve in curves]
    values = [(curve, point) for curve, point in near if point is not None]
    words = [(plot.x + " " + plot.said_x(x), "")]
    words += [(_said(plot, curve, point, len(curves) > 1, x), _color(curve)) for curve, point in values[:_MOST_LINES]]
    words += [(f"and {len(values) - _MOST_LINES} more", "")] if len(values) > _MOST_LINES else []
    dots = (_dot(place(curve.xs[at], curve.ys[at]), _color(curve)) for curve, at in values)
    rule = element("line", x1=_pt(line), x2=_pt(line), y1=_pt(box.top), y2=_pt(box.bottom))
    area = element("rect", x=_pt(left), y=_pt(box.top), width=_pt(right - left), height=_pt(box.bottom - box.top))
    return element("g", area, element("g", rule, *dots, *_card(words, line, box)))


def _card(words: Sequence[tuple[str, str]], line: float, box: Box) -> Iterator[Html]:
    """Lines of text on a ground of their own, beside the line and inside the picture, as far as they fit."""
    wide = max(len(said) for said, _ in words) * _LETTER + 12
    left = line - 6 - wide if line > (box.left + box.right) / 2 else line + 6
    left = max(2.0, min(left, box.right - wide))
    high = _LINE * len(words) + 6
    yield element("rect", x=_pt(left), y=_pt(box.top), width=_pt(wide), height=_pt(high), rx="3", class_="card")
    for number, (said, color) in enumerate(words):
        yield element("text", said, x=_pt(left + 6), y=_pt(box.top + 12 + _LINE * number), **_fill(color))


def _nearest(curve: Curve, place: Place, line: float, left: float, right: float) -> int | None:
    """The point of a curve that lies in the column and nearest to its middle line, if there is one."""
    inside = [(abs(found - line), at) for at, x in enumerate(curve.xs) if left <= (found := place(x, 0.5)[0]) <= right]
    return min(inside)[1] if inside else None


def _said(plot: Plot, curve: Curve, at: int, named: bool, x: float) -> str:
    name = curve.name if len(curve.name) <= _LONGEST else f"{curve.name[: _LONGEST - 1]}…"
    who = name if named else plot.y
    band = f" ({plot.said_y(curve.low[at])} to {plot.said_y(curve.high[at])})" if curve.low else ""
    where = "" if curve.xs[at] == x else f" at {plot.said_x(curve.xs[at])}"
    return f"{who} {plot.said_y(curve.ys[at])}{band}{where}"


def _color(curve: Curve) -> str:
    return f"var(--run-{curve.index % 8})"


def _fill(color: str) -> dict[str, str]:
    return {"style": f"fill:{color}"} if color else {}


def _dot(center: tuple[float, float], color: str) -> Html:
    return element("circle", cx=_pt(center[0]), cy=_pt(center[1]), r="3.5", **_fill(color))


def _pt(value: float) -> str:
    return f"{value:.1f}"
