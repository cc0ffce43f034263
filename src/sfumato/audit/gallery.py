"""Pictures side by side: the true ones in the first row, and below each what an attack made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 10  # columns
_SIDE = 1.05  # inches of a picture


@dataclass(frozen=True)
class Gallery:
    """Rows of pictures [n, channels, height, width] with pixels from 0 to 1, by name; `captions` go under single ones."""

    rows: Mapping[str, Tensor]
    captions: Mapping[str, tuple[str, ...]]

    def figure(self) -> Figure:
        """Drawn in whatever style is set."""
        from matplotlib.figure import Figure

        columns = min(_MOST, max(map(len, self.rows.values())))
        label = 0.072 * max(map(len, self.rows)) + 0.2
        high = _SIDE + 0.22
        figure = Figure(figsize=(max(label + columns * _SIDE, 3.2), high * len(self.rows)))
        figure.set_layout_engine("none")
        width, height = figure.get_size_inches()
        for place, (name, pictures) in enumerate(self.rows.items()):
            bottom = 1 - (place + 1) * high / height + 0.2 / height
            figure.text(0.05 / width, bottom + _SIDE / 2 / height, name, fontsize=9.5, va="center")
            for column in range(min(columns, len(pictures))):
                left = (label + column * _SIDE) / width
                axes = figure.add_axes((left, bottom, 0.94 * _SIDE / width, 0.94 * _SIDE / height))
                axes.imshow(pictures[column].permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=1)
                axes.set_axis_off()
                if column < len(said := self.captions.get(name, ())):
                    axes.text(0.5, -0.03, said[column], transform=axes.transAxes, ha="center", va="top", fontsize=8)
        return figure
