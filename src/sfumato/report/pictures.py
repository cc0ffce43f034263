"""Curves as pictures, in one calm style: inline SVG that takes its colours from the page, and PNG files.

matplotlib is imported when a picture is drawn. Inside a page its colours become CSS variables, so that a picture is
legible in the light, in the dark and on paper; its text stays text, in the page's own type.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from sfumato.report.curves import Curve, Plot
from sfumato.report.hover import Box, columns
from sfumato.report.markup import Html, escaped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, GRID = "#2a2e34", "#dcd9d2"
SERIES = ("#1f5f8b", "#b4531f", "#3a7d50", "#7b4f9c", "#94700f", "#b23a5e", "#2b7f86", "#5b6470")
MAKER = "Sfumato"
_STEPS = (1, 2, 2.5, 5, 10)
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
_STYLE: dict[str, Any] = {
    "font.size": 11,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.02,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.pad": 6,
    "lines.linewidth": 1.9,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",
    "text.parse_math": False,
}
_TOKENS = {INK: "var(--ink)", GRID: "var(--grid)", **{color: f"var(--run-{i})" for i, color in enumerate(SERIES)}}


def svg(plot: Plot) -> Html:
    """The picture as an element of a page, with its words for whoever cannot see it."""
    buffer = io.StringIO()
    with _style(plot.name):
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure = _figure(plot, legend=False)
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
        values = _values(plot, figure)
    return Html(_inline(buffer.getvalue(), plot).removesuffix("</svg>") + values + "</svg>")


def _values(plot: Plot, figure: Figure) -> Html:
    """What is shown where the pointer is; the figure knows where its curves lie once it was drawn."""
    axes, scale = figure.axes[0], 72.0 / figure.dpi  # an SVG counts in points, from the top
    height = figure.get_figheight() * 72.0
    frame = axes.get_window_extent()
    box = Box(frame.x0 * scale, height - frame.y1 * scale, frame.x1 * scale, height - frame.y0 * scale)

    @cache
    def place(x: float, y: float) -> tuple[float, float]:
        across, up = axes.transData.transform((x, y))
        return float(across) * scale, height - float(up) * scale

    return columns(plot, box, place)


def png(plot: Plot) -> bytes:
    """The picture as a file of its own, on white, with a legend if there are several curves."""
    return drawn(plot.name, plot.title, lambda: _figure(plot, legend=len(plot.curves) > 1))


def drawn(name: str, title: str, make: Callable[[], Figure], form: str = "png") -> bytes:
    """Any figure as a file, in our style: png, svg or pdf."""
    buffer = io.BytesIO()
    with _style(name):
        maker: dict[str, dict[str, str | None]] = {"png": {"Software": MAKER}, "svg": {"Creator": MAKER, "Date": None}}
        told = {**maker.get(form, {"Creator": MAKER, "CreationDate": None}), "Title": title}
        make().savefig(buffer, format=form, dpi=200, facecolor="white", metadata=told)
    return buffer.getvalue()


def series(index: int) -> str:
    """The colour of the run with this number, for the page."""
    return f"var(--run-{index % len(SERIES)})"


@contextmanager
def _style(salt: str) -> Iterator[None]:
    """Our settings and no others, whatever the user's matplotlibrc says; equal pictures get equal bytes."""
    import matplotlib.style

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name in a script that the font lacks
        with matplotlib.style.context(["default", {**_STYLE, "svg.hashsalt": salt}]):
            yield


def _figure(plot: Plot, legend: bool) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = -(-len(plot.curves) // 2) if legend else 0
    figure = Figure(figsize=(5.4, 3.4 + 0.25 * rows))
    axes = figure.add_subplot()
    for curve in plot.curves:
        color, dashes = SERIES[curve.index % len(SERIES)], _DASHES[curve.index // len(SERIES) % len(_DASHES)]
        if curve.level:
            axes.axhline(curve.ys[0], color=color, linestyle=(0, (4, 3)), linewidth=1.5)
            continue
        few = len(curve.xs) <= 25 and not plot.floor
        marker = {"marker": "o", "markersize": 3.6} if few else {}
        axes.plot(curve.xs, curve.ys, color=color, linestyle=dashes, **marker)  # type: ignore[arg-type]
        if curve.low:
            axes.fill_between(curve.xs, curve.low, curve.high, color=color, alpha=0.15, linewidth=0)
    axes.set_xlabel(plot.x, labelpad=6)
    axes.set_ylabel(plot.y, labelpad=6)
    if plot.log:
        _log_axes(axes, plot)
        return _with_legend(figure, axes, plot, legend)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=_STEPS, integer=plot.x == "Round", min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
    if plot.x == "Round":
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for axis in (axes.xaxis, axes.yaxis) if plot.floor else (axes.yaxis,) if plot.percent else ():
        axis.set_major_formatter(lambda value, _: f"{round(100 * value, 6):g} %")
    _set_limits(axes, plot)
    return _with_legend(figure, axes, plot, legend)


def _with_legend(figure: Figure, axes: Any, plot: Plot, legend: bool) -> Figure:
    if legend:
        names = [_label(curve) for curve in plot.curves]
        columns, lines = min(2, len(names)), [*axes.get_lines()]
        figure.legend(lines, names, loc="outside lower center", ncols=columns, labelcolor=INK, fontsize=9.5)
    return figure


def _log_axes(axes: Any, plot: Plot) -> None:
    """Rates from the smallest there is up to 1; a rate of nothing lies below the picture."""
    least = min(curve.xs[0] for curve in plot.curves)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda value, _: "")
    axes.set_xlim(least, 1.0)
    axes.set_ylim(least / 2, 1.05)


def _set_limits(axes: Any, plot: Plot) -> None:
    """A share keeps inside 0 and 1 and never looks steeper than a tenth; an epsilon starts at nothing."""
    if plot.floor:
        axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    elif plot.percent:
        low, high = axes.get_ylim()
        middle, half = (low + high) / 2, max(high - low, 0.1) / 2
        axes.set_ylim(max(middle - half, 0.0), min(middle + half, 1.0))
    if plot.name == "epsilon":
        axes.set_ylim(bottom=0.0)
    if plot.x == "Epsilon":
        axes.set_xlim(left=0.0)
    if plot.x == "Round" and all(len(curve.xs) == 1 for curve in plot.curves):
        only = plot.curves[0].xs[0]
        axes.set_xlim(only - 1, only + 1)


def _label(curve: Curve) -> str:
    """A name that matplotlib takes as it is: printable, not too long, and with no underscore in front."""
    name = "".join(letter if letter.isprintable() else "?" for letter in curve.name)
    name = name if len(name) <= 32 else f"…{name[-31:]}"
    return (f" {name}" if name.startswith("_") else name) + (" (no guarantee)" if curve.level else "")


def _inline(document: str, plot: Plot) -> str:
    """An SVG file as part of a page: no prologue, no namespaces, no addresses, and ids that no other picture has."""
    head, close, body = document[document.index("<svg") :].partition(">")
    body = re.sub(r'\s(xmlns(:\w+)?|version|width|height)="[^"]*"', "", head) + close + body
    body = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href")
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", body)
    for name in used:
        body = re.sub(rf'(id="|"#|url\(#){re.escape(name)}(?=["\)])', rf"\g<1>{plot.name}-{name}", body)
    body = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", body)
    body = re.sub(r"font-family:[^;\"]*;?", "", body)
    for color, variable in _TOKENS.items():
        body = body.replace(color, variable)
    body = re.sub(r"\s*\n\s*", "\n", body)
    return body.replace("<svg", f'<svg role="img" aria-label="{escaped(plot.words)}"', 1).strip()
