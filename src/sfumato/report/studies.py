"""Pictures of a study that are not curves: losses around a model, and how long updates are before the clip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.report.pictures import INK, SERIES, drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = "cividis"


@dataclass(frozen=True)
class Landscape:
    """Losses [steps, steps] around a model, which is in the middle."""

    steps: Sequence[float]
    losses: Sequence[Sequence[float]]

    @property
    def sharpness(self) -> float:
        """How much the loss rises, at the median, on the edge of the square."""
        values = np.array(self.losses)
        edge = np.concatenate([values[0], values[-1], values[1:-1, 0], values[1:-1, -1]])
        return float(np.median(edge) - values[len(values) // 2, len(values) // 2])


@dataclass(frozen=True)
class Surfaces:
    """Landscapes of several models over one scale, as hills or (`flat`) as contours."""

    name: str
    title: str
    surfaces: Mapping[str, Landscape]  # by the model's name
    flat: bool = False

    def png(self) -> bytes:
        return drawn(self.name, self.title, self._figure)

    def _scale(self) -> tuple[float, float]:
        values = np.concatenate([np.ravel(surface.losses) for surface in self.surfaces.values()])
        values = values[np.isfinite(values)]
        low, high = float(values.min()), float(np.quantile(values, 0.98))
        return low, max(high, low + 1e-6)

    def _figure(self) -> Figure:
        from matplotlib.figure import Figure

        (low, high), count = self._scale(), len(self.surfaces)
        rows, columns = (1, count) if count <= 3 else (-(-count // 2), 2)
        figure = Figure(figsize=(3.2 * columns + 0.7, 3.4 * rows) if self.flat else (4.4 * columns, 3.7 * rows))
        room = (
            {"w_pad": 0.12} if self.flat else {"rect": (0.0, 0.02, 0.94, 0.97)}
        )  # by itself it forgets the third axis
        figure.set_layout_engine("constrained", **room)
        for number, (title, surface) in enumerate(self.surfaces.items()):
            axis = figure.add_subplot(rows, columns, number + 1, projection=None if self.flat else "3d")
            draw = _contours if self.flat else _hills
            draw(axis, surface.steps, np.clip(np.array(surface.losses), low, high), low, high)
            axis.set_title(title, fontsize=11, color=INK)
            axis.set_xticks(ends := np.linspace(surface.steps[0], surface.steps[-1], 5))
            axis.set_yticks(ends)
            if self.flat and number >= count - columns:
                axis.set_xlabel("First direction")
            if self.flat and number % columns == 0:
                axis.set_ylabel("Second direction")
        return figure


def _contours(axis: Any, steps: Sequence[float], losses: np.ndarray, low: float, high: float) -> None:
    levels = low + (high - low) * np.linspace(0.02, 1.0, 12) ** 2
    lines = axis.contour(steps, steps, losses.T, levels=levels, cmap=_COLORS, linewidths=1.3)
    axis.clabel(lines, levels[1::3], fmt="%.1f", fontsize=8)
    axis.plot(0, 0, marker="+", markersize=9, color=INK)
    axis.set_aspect("equal")
    axis.grid(False)


def _hills(axis: Any, steps: Sequence[float], losses: np.ndarray, low: float, high: float) -> None:
    first, second = np.meshgrid(steps, steps, indexing="ij")
    shape = {"rstride": 1, "cstride": 1, "linewidth": 0.15, "edgecolor": "#ffffff40"}
    axis.plot_surface(first, second, losses, cmap=_COLORS, vmin=low, vmax=high, **shape)
    axis.set_zlim(low, high)
    axis.set_zlabel("Loss")
    axis.tick_params(labelsize=8, pad=1)
    axis.view_init(elev=28, azim=-58)


@dataclass(frozen=True)
class Norms:
    """How updates are distributed before the clip: `counts` between `edges`, one pair for each name."""

    name: str
    title: str
    names: tuple[str, ...]
    edges: tuple[Sequence[float], ...]
    counts: tuple[Sequence[float], ...]
    clip: float

    def png(self) -> bytes:
        return drawn(self.name, self.title, self._figure)

    def _figure(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.4, 3.6))
        axes = figure.add_subplot()
        for number, (name, edges, counts) in enumerate(zip(self.names, self.edges, self.counts, strict=True)):
            color, places = SERIES[number % len(SERIES)], np.asarray(edges, dtype=np.float64)
            density = np.asarray(counts, dtype=np.float64) / (np.sum(counts) * np.diff(places))
            axes.stairs(density, places, color=color, linewidth=1.7, label=name)
            axes.stairs(density, places, color=color, alpha=0.12, fill=True)
        axes.axvline(self.clip, color=INK, linestyle=(0, (4, 3)), linewidth=1.2, label=f"clip {self.clip:g}")
        axes.set_xlabel("Norm of an update before the clip", labelpad=6)
        axes.set_ylabel("Density", labelpad=6)
        axes.set_xlim(left=0.0)
        columns = min(3, len(self.names) + 1)
        figure.legend(loc="outside lower center", ncols=columns, labelcolor=INK, fontsize=9.5)
        return figure


@dataclass(frozen=True)
class Ranges:
    """Two ends for each of several names, as bars between them: a bound from below and one from above."""

    name: str
    title: str
    rows: Mapping[str, tuple[float, float]]
    ends: tuple[str, str]
    label: str

    def png(self) -> bytes:
        return drawn(self.name, self.title, self._figure)

    def _figure(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.6, 0.9 + 0.36 * len(self.rows)))
        axis = figure.add_subplot()
        places = range(len(self.rows), 0, -1)
        low, high = zip(*self.rows.values(), strict=True)
        axis.hlines(places, low, high, color=SERIES[0], linewidth=5, alpha=0.22)
        axis.scatter(low, places, color=SERIES[0], s=34, label=self.ends[0], zorder=3)
        axis.scatter(high, places, color=SERIES[1], s=60, marker="|", linewidths=2.4, label=self.ends[1], zorder=3)
        axis.set_yticks(list(places), list(self.rows))
        axis.set_xlim(0.0, 1.06 * max(*low, *high))
        axis.set_xlabel(self.label)
        axis.grid(visible=False, axis="y")
        figure.legend(loc="outside upper right", ncols=2)
        return figure
