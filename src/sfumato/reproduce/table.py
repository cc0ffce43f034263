"""A table is a list of cells, and a cell is a pure function of its settings and its seed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sfumato.report.curves import Plot
from sfumato.report.studies import Norms, Ranges, Surfaces
from sfumato.version import __version__

QUICK, DEFAULT, FULL = SCALES = ("quick", "default", "full")
Settings = Mapping[str, Any]
Picture = Plot | Surfaces | Norms | Ranges
Row = dict[str, str]
Value = TypeVar("Value")


def at(scale: str, quick: Value, default: Value, full: Value) -> Value:
    """What holds at a scale."""
    return {QUICK: quick, DEFAULT: default, FULL: full}[scale]


def scaled(scale: str, quick: Settings, default: str, full: str = "") -> str:
    """How a scale differs from the paper's setting; `quick` are the settings of that scale."""
    words = (
        f"Quick: {quick['rounds']} rounds of a linear model on scikit-learn's digits with {quick['clients']} clients. "
        "It shows that everything runs, and says nothing about the paper's numbers."
    )
    return at(scale, words, default, full)


@dataclass(frozen=True)
class Work:
    """What cells compute: `function(settings, seed)` gives plain JSON.

    Stored cells know the function by `name`, which stays as it is wherever the function is moved; another computation
    needs another name.
    """

    name: str
    function: Callable[[Settings, int], dict[str, Any]] = field(compare=False, repr=False)


@dataclass(frozen=True)
class Cell:
    """One run. Cells of one row differ in their seeds, and in the settings that the row shows in columns."""

    row: str
    settings: Settings
    seed: int
    work: Work
    paper: Settings = field(default_factory=dict)  # what the paper prints in this row, and what the row is known by

    @property
    def digest(self) -> str:
        """The same for the same settings, seed, work and version, whatever table it stands in."""
        facts = [dict(self.settings), self.seed, self.work.name, __version__]
        return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=6).hexdigest()

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{re.sub('[^a-z0-9]+', '-', self.row.lower()).strip('-')}-seed-{self.seed}-{self.digest}"


def seeded(seeds: int, row: str, settings: Settings, work: Work, paper: Settings | None = None) -> list[Cell]:
    """The cells of one row that differ in nothing but their seeds."""
    return [Cell(row, settings, seed, work, paper or {}) for seed in range(seeds)]


@dataclass(frozen=True)
class Done:
    """A cell with its result and the seconds that it took."""

    cell: Cell
    result: dict[str, Any]
    seconds: float

    @property
    def facts(self) -> dict[str, Any]:
        """The cell's settings, and what the paper says of them."""
        return {**self.cell.settings, **self.cell.paper}


Group = Sequence[Done]  # what is shown together
RowOf = Callable[[Group], Row]


def nothing(done: Group) -> Sequence[Any]:
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
    cells: Sequence[Cell]
    row: RowOf = field(repr=False)
    plots: Callable[[Group], Sequence[Picture]] = field(repr=False)
    scaled: str = ""  # how the setting differs from the paper's
    notes: tuple[str, ...] = ()
    findings: Callable[[Group], Sequence[str]] = field(default=nothing, repr=False)

    def rows(self, done: Group) -> list[Row]:
        """The lines of the table, as far as there are cells."""
        return [self.row(group) for group in groups(done)]


def groups(done: Group) -> list[list[Done]]:
    """The cells of each row, in the order of the table."""
    found: dict[str, list[Done]] = {}
    for one in done:
        found.setdefault(one.cell.row, []).append(one)
    return list(found.values())
