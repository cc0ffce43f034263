"""What a report knows of a run: run.json, metrics.jsonl, audit.json, the text of run.toml, and what its ledger holds.

Nothing else in the folder is opened. A ledger holds the events of the plan, never who was drawn, so that whoever may see
the guarantee may see them.

The diagnostics are not private, and are kept in a folder of their own; so a report cannot show them by mistake.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato.account.event import Event, Unit
from sfumato.account.protocol import Accountant
from sfumato.errors import BadValue, DataError, SfumatoError
from sfumato.ledger.ledger import Ledger
from sfumato.run.schema import read_summary, read_text


@dataclass(frozen=True)
class Point:
    """One line of metrics.jsonl; None where nothing was evaluated."""

    round: int
    epsilon: float | None
    accuracy: float | None
    loss: float | None = None  # on public test data, as the accuracy is


@dataclass(frozen=True)
class Record:
    """A finished run, as its files tell it. `name` is what tells it from the other runs on the page."""

    name: str
    summary: dict[str, Any]
    points: tuple[Point, ...]
    toml: str
    audit: dict[str, Any] = field(default_factory=dict)  # what worst-case canaries showed, where it was audited
    event: Event | None = (
        None  # what its guarantee is the price of; None where the ledger is not there, or not readable
    )
    price: Accountant | None = None  # what prices it, by the basis of that ledger

    def text(self, key: str) -> str:
        """A value of run.json as text; empty where there is none."""
        value = self.summary.get(key)
        return "" if value is None else str(value)

    def number(self, key: str) -> float | None:
        """A value of run.json as a finite number, else None: an infinite epsilon is no guarantee."""
        return finite(self.summary.get(key))

    def table(self, key: str) -> dict[str, Any]:
        """A table in run.json; empty where there is none."""
        value = self.summary.get(key)
        return value if isinstance(value, dict) else {}

    @property
    def proven(self) -> bool:
        """Whether there is an epsilon to print."""
        return self.number("epsilon") is not None and not self.summary.get("unproven")

    @property
    def baseline(self) -> bool:
        """Whether the run never tried to hide anything."""
        return self.summary.get("nonprivate") is True

    @property
    def measure(self) -> str:
        """The name of the metric that stands under `accuracy`: for a regression it is another one."""
        return self.text("primary")

    def guarantee(self, unit: str, view: str) -> dict[str, Any]:
        """The facts of a guarantee; empty where there is none."""
        found: Any = self.summary.get("guarantees")
        for key in (unit, view):
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    @property
    def assumptions(self) -> list[str]:
        """What the guarantee rests on."""
        listed = self.summary.get("assumptions")
        return [str(item) for item in listed] if isinstance(listed, list) else []


def finite(value: object) -> float | None:
    """A finite number, else None.

    >>> finite(2), finite(float("nan")), finite("2"), finite(True)
    (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def read_runs(folders: Sequence[Path]) -> tuple[Record, ...]:
    """The finished runs in these folders; a folder that is named twice counts once."""
    distinct = list(dict.fromkeys(folder.resolve() for folder in folders))
    if not distinct:
        raise BadValue("a report needs at least one run folder, e.g. runs/first.")
    as_given = {folder.resolve(): folder for folder in reversed(folders)}
    names = distinct_names(distinct)
    return tuple(_read(as_given[folder], name) for folder, name in zip(distinct, names, strict=True))


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart.

    >>> distinct_names([Path("/runs/a/first"), Path("/runs/b/first")])
    ['a/first', 'b/first']
    """
    longest = max(len(folder.parts) for folder in folders)
    for length in range(1, longest + 1):
        names = ["/".join(folder.parts[-length:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _read(folder: Path, name: str) -> Record:
    summary = read_summary(folder)
    toml, audit = read_text(folder / "run.toml") or "", _audit(folder / "audit.json")
    event, price = _event(folder / "ledger.sqlite", str(summary["unit"]))
    return Record(name, summary, _points(folder / "metrics.jsonl"), toml, audit, event, price)


def _event(path: Path, unit: str) -> tuple[Event | None, Accountant | None]:
    """What everyone has seen of one unit, as the run's own ledger has it; a report of a run without one is still a report."""
    if not path.exists() or unit not in list(Unit):
        return None, None
    try:
        book = Ledger(path, None)
        spent, price = book.spent(Unit(unit)), book.price
    except (SfumatoError, sqlite3.Error, ValueError, KeyError):
        return None, None
    return (None if spent is None else spent.world), price


def _audit(path: Path) -> dict[str, Any]:
    """What canaries showed; empty where nobody looked."""
    try:
        found = json.loads(read_text(path) or "{}")
    except ValueError:
        raise DataError(f"{path} cannot be read. Audit the run again, or remove the file.") from None
    return found if isinstance(found, dict) else {}


def _points(path: Path) -> tuple[Point, ...]:
    """One point per round, the last line of a round counting; a torn last line is left out."""
    lines = (read_text(path) or "").splitlines()
    points: dict[int, Point] = {}
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
            round = int(found["round"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            if number == len(lines):
                break
            raise DataError(f"{path}, line {number}, is not a round. Restore the file, or train again.") from None
        metrics = found.get("metrics")
        loss = finite(metrics.get("loss")) if isinstance(metrics, dict) else None
        points[round] = Point(round, finite(found.get("epsilon")), finite(found.get("accuracy")), loss)
    return tuple(points[round] for round in sorted(points))
