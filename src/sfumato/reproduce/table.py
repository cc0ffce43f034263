"""A table is a list of cells, and a cell is a pure function of its settings and its seed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sfumato.report.curves import Plot
from sfumato.version import __version__

QUICK, DEFAULT, FULL = SCALES = ("quick", "default", "full")
MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """One run: `compute(settings, seed)` gives its result as plain JSON. Cells of one row differ in their seeds, and in the
    settings that the row shows in columns.
    """

    row: str
    settings: Mapping[str, Any]
    seed: int
    compute: Callable[[Mapping[str, Any], int], dict[str, Any]] = field(repr=False)
    paper: Mapping[str, Any] = field(default_factory=dict)  # what the paper prints in this row

    @property
    def digest(self) -> str:
        """The same for the same settings, seed, function and version, whatever table it stands in."""
        facts = [dict(self.settings), self.seed, f"{self.compute.__module__}.{self.compute.__qualname__}", __version__]
        return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=6).hexdigest()

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{re.sub('[^a-z0-9]+', '-', self.row.lower()).strip('-')}-seed-{self.seed}-{self.digest}"


@dataclass(frozen=True)
class Done:
    """A cell with its result and the seconds that it took."""

    cell: Cell
    result: dict[str, Any]
    seconds: float


Row = dict[str, str]


@runtime_checkable
class Picture(Protocol):
    """What draws itself: `name` is its file."""

    @property
    def name(self) -> str:
        """The name of the file, without its ending."""

    def png(self) -> bytes:
        """The file's content."""


def nothing(done: Sequence[Done]) -> Sequence[str]:
    """Nothing to add."""
    return ()


@dataclass(frozen=True)
class Table:
    """What to run and how to show it: `row` makes a line of the table from the cells of one row, `plots` the pictures,
    `findings` what the whole table says in words.
    """

    name: str
    title: str
    paper: str
    scale: str
    cells: tuple[Cell, ...]
    row: Callable[[Sequence[Done]], Row] = field(repr=False)
    plots: Callable[[Sequence[Done]], Sequence[Plot | Picture]] = field(repr=False)
    scaled: str = ""  # how the setting differs from the paper's
    notes: tuple[str, ...] = ()
    findings: Callable[[Sequence[Done]], Sequence[str]] = field(default=nothing, repr=False)


def groups(done: Sequence[Done]) -> list[list[Done]]:
    """The cells of each row, in the order of the table."""
    found: dict[str, list[Done]] = {}
    for one in done:
        found.setdefault(one.cell.row, []).append(one)
    return list(found.values())


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
