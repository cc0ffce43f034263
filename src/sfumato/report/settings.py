"""The settings of runs, by the names that run.toml and `--set` have for them: which differ, and which are the same.

What was computed counts more than what was asked for: noise, clip and delta are those of [resolved]. The seed of the noise
is never shown, since the noise can be computed from it; that seeds differ is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.report.read import Record, finite
from sfumato.report.words import MISSING, number

SEEDS = ("seed", "model.seed", "data.split_seed")
_DEFAULT = "its default"
# Said by run.json, in words of their own; or no setting: how a machine went about it, and where things lie.
_SAID = (
    *("schema", "recipe", "rounds", "delta", "data.name", "data.clients", "model.name", "pieces"),
    *("options.clip", "options.noise_multiplier", "options.relation"),
)
_RESOLVED = ("dimension", "divisor", "basis_noise_multiplier")
_ASIDE = ("ledger", "force_ledger", "diagnostics", "keep_releases", "data.folder")
_MOST_DIGITS = 17


def settings(run: Record) -> dict[str, Any]:
    """Every setting of a run that run.json has no word for; nothing where there is no run.toml that can be read."""
    try:
        tables = tomllib.loads(run.toml)
    except tomllib.TOMLDecodeError:
        return {}
    resolved = tables.pop("resolved", {})
    found = dict(_flat(tables))
    found |= {f"options.{name}": value for name, value in run.table("options").items()}
    found |= {name: resolved[name] for name in _RESOLVED if name in resolved}
    if "pieces" in found:
        found |= _pieces(run)
    return {name: value for name, value in found.items() if name not in _SAID}


def _flat(tables: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in tables.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _pieces(run: Record) -> dict[str, str]:
    """The slots of a run from Python, as its derivation has them."""
    steps = [step for step in run.summary.get("derivation") or () if isinstance(step, dict)]
    slots = dict.fromkeys(str(step.get("slot")) for step in steps)
    return {
        slot: ", ".join(str(step.get("piece")) for step in steps if str(step.get("slot")) == slot) for slot in slots
    }


def seeds(run: Record) -> tuple[Any, ...]:
    """What a run draws from, public and not; None where a secret of its own takes the place of a seed."""
    found = settings(run)
    return tuple(found.get(name) for name in SEEDS)


def without_seeds(run: Record) -> dict[str, Any]:
    """What two runs have in common that differ in nothing but chance."""
    return {name: value for name, value in settings(run).items() if name not in (*SEEDS, *_ASIDE)}


@dataclass(frozen=True)
class Row:
    """One setting: what it is for each group of runs, in words, and whether it differs anywhere."""

    cells: tuple[str, ...]
    differs: bool


def rows(groups: Sequence[Sequence[Record]]) -> dict[str, Row]:
    """Each setting of runs, which stand in groups that differ in their seeds only."""
    known = [[settings(run) for run in group] for group in groups]
    names = dict.fromkeys(name for group in known for found in group for name in found)
    return {name: _row(name, [[_value(name, found) for found in group] for group in known]) for name in names}


def _row(name: str, values: Sequence[Sequence[Any]]) -> Row:
    differs = len({repr(value) for group in values for value in group}) > 1
    if name == "seed":  # a run without one draws from a secret of its own, which no other run has
        given = [sum(value is not None for value in group) for group in values]
        said = ("" if count == 1 else f"{number(count)} " for count in given)
        cells = (f"{many}given, not shown" if count else MISSING for many, count in zip(said, given, strict=True))
        return Row(tuple(cells), differs)
    flat = _words([value for group in values for value in group])
    distinct = (dict.fromkeys(flat.pop(0) for _ in group) for group in values)
    return Row(tuple(", ".join(words) for words in distinct), differs)


def _value(name: str, found: Mapping[str, Any]) -> Any:
    recipe = name.startswith("options.") and "pieces" not in found
    return found.get(name, _DEFAULT if recipe else None)


def _words(values: Sequence[Any]) -> list[str]:
    """Values in words; numbers have four digits, or as many as it takes to tell those apart that differ."""
    different = len({repr(value) for value in values})
    for digits in range(4, _MOST_DIGITS + 1):
        said = [_said(value, digits) for value in values]
        if len(set(said)) == different:
            break
    return said


def _said(value: Any, digits: int) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_said(one, digits) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_said(one, digits)}" for name, one in value.items())
    found = finite(value)
    return number(found, digits) if found is not None else MISSING if value is None else str(value) or MISSING
