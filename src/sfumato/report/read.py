"""What a report knows of a run: run.json, metrics.jsonl and the text of run.toml. Nothing else in the folder is opened.

The diagnostics are not private, and are kept in a folder of their own; so a report cannot show them by mistake.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.errors import BadValue, DataError, refused_by_system

SCHEMA = 1
_ALWAYS = (
    *("recipe", "data", "model", "input_shape", "outputs", "population", "rounds"),
    *("epsilon", "delta", "unit", "relation", "metrics", "guarantee"),
)


@dataclass(frozen=True)
class Point:
    """One line of metrics.jsonl; None where nothing was evaluated."""

    round: int
    epsilon: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Record:
    """A finished run, as its files tell it. `name` is what tells it from the other runs on the page."""

    name: str
    summary: dict[str, Any]
    points: tuple[Point, ...]
    toml: str

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
        """Whether the run never tried to hide anything: no epsilon, no paper's claim, no noise."""
        noise = (self.number("noise_multiplier"), self.number("stddev"))
        return not self.proven and not self.summary.get("unproven") and noise == (None, None)

    @property
    def measure(self) -> str:
        """The name of the metric that stands under `accuracy`: for a regression it is another one."""
        metrics, value = self.table("metrics"), self.number("accuracy")
        if value is None or finite(metrics.get("accuracy")) == value:
            return "accuracy"
        return next((str(name) for name, found in metrics.items() if finite(found) == value), "accuracy")


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
    return Record(name, summary, _points(folder / "metrics.jsonl"), _text(folder / "run.toml") or "")


def read_summary(folder: Path) -> dict[str, Any]:
    """run.json of a finished run, with the keys that every run has."""
    path = folder / "run.json"
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such run folder. Give one that sfumato train wrote, e.g. runs/first.")
    content = _text(path)
    if content is None:
        if (folder / "run.toml").exists():
            raise DataError(f"{folder} holds an unfinished run. Finish it first: sfumato train --resume {folder}")
        raise DataError(f"{folder} holds no run: run.json is missing. Give the folder that sfumato train wrote.")
    try:
        found = json.loads(content)
    except (json.JSONDecodeError, RecursionError):
        raise DataError(f"{path} is not JSON, so the run cannot be read. Restore the file, or train again.") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no table of values, so it describes no run. Restore the file, or train again.")
    if found.get("schema") != SCHEMA:
        other = found.get("schema")
        raise DataError(
            f"{path} has schema {other!r}, not {SCHEMA}: another version of Sfumato wrote it. Use that one."
        )
    if missing := [key for key in _ALWAYS if key not in found]:
        raise DataError(
            f"{path} lacks {', '.join(missing)}, so it does not describe a whole run. Restore the file, or train again."
        )
    return found


def _points(path: Path) -> tuple[Point, ...]:
    """One point per round, the last line of a round counting; a torn last line is left out."""
    lines = (_text(path) or "").splitlines()
    points: dict[int, Point] = {}
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
            round = int(found["round"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            if number == len(lines):
                break
            raise DataError(f"{path}, line {number}, is not a round. Restore the file, or train again.") from None
        points[round] = Point(round, finite(found.get("epsilon")), finite(found.get("accuracy")))
    return tuple(points[round] for round in sorted(points))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused_by_system(error) from None
