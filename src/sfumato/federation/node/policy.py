"""node.toml: whose data a node holds, where it keeps its own things, and what its owner allows to be done with the data.

Whatever is not allowed is refused. So a new file allows nothing until its owner lists recipes and states a budget; `sfumato node
check` says what a node would allow. Where the owner wants no limit, that is written down: `epsilon = inf`.
"""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato.account.event import Unit
from sfumato.data.apart import DeclaredRecords
from sfumato.errors import BadValue, DataError, nearest
from sfumato.guarantee import check_delta, default_delta
from sfumato.imports import is_import_path
from sfumato.ledger.ledger import Budget
from sfumato.recipes import RECIPES
from sfumato.run.settings_text import typed

ANY = "any"  # in place of recipes: any of them, and rounds that are none
LIBRARY = "library"  # in lists of models and features: all that the library has by name
SUFFICES, REFUSED = "suffices", "refused"
ADAPTIVE, PLAN = "adaptive", "plan"  # what the ledger of a data set proves: any runs, or one whose terms are its plan
_LONGEST = 3600.0  # seconds for which a reply may be held back
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Policy:
    """What one node.toml says. `data` is a folder or a file with one client, or `module:name`.

    A limit that is None is not set. `budgets` are those of single data sets, by name; one of infinite epsilon limits nothing, and
    a data set without any is not used at all. `total` is over all data sets that share the folder. `records` is what the owner
    declares of the records; without it every run is refused. Replies leave `reply_seconds` after their request, if they are set.
    """

    client: int
    data: str
    name: str
    folder: Path
    recipes: tuple[str, ...] = ()
    models: tuple[str, ...] = (LIBRARY,)
    features: tuple[str, ...] = (LIBRARY,)
    smallest_noise: float = 0.0
    smallest_cohort: int = 1
    rounds_per_day: int | None = None
    promise: str = REFUSED
    shared_keys: bool = False
    unproven: bool = False
    nonprivate: bool = False
    basis: str = ADAPTIVE
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    total: Budget | None = None
    records: DeclaredRecords | None = None
    reply_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.reply_seconds is not None and not 0.0 < self.reply_seconds <= _LONGEST:
            raise BadValue(f"node.reply_seconds={self.reply_seconds:g}: seconds, more than 0 and at most {_LONGEST:g}.")
        _at_least("node.client", self.client, 0)
        _at_least("allow.smallest_cohort", self.smallest_cohort, 1)
        if self.rounds_per_day is not None:
            _at_least("allow.rounds_per_day", self.rounds_per_day, 1)
        if not (self.smallest_noise >= 0.0 and math.isfinite(self.smallest_noise)):
            raise BadValue(f"allow.smallest_noise={self.smallest_noise}: a noise multiplier, at least 0, e.g. 1.0.")
        if self.promise not in (SUFFICES, REFUSED):
            raise BadValue(f"allow.promise={self.promise!r}: {nearest(self.promise, [SUFFICES, REFUSED])}")
        if self.basis not in (ADAPTIVE, PLAN):
            raise BadValue(f"allow.basis={self.basis!r}: {nearest(self.basis, [ADAPTIVE, PLAN])}")
        for name in (self.name, *self.budgets):
            if not _NAME.fullmatch(name):
                raise BadValue(f"{name!r} names no data set. Use letters, digits, dots and dashes, e.g. hospital-7.")
        for recipe in self.recipes:
            if recipe != ANY and recipe not in RECIPES:
                raise BadValue(f"allow.recipes: there is no recipe {recipe!r}. {nearest(recipe, [*RECIPES, ANY])}")

    @property
    def budget(self) -> Budget | None:
        """That of the node's own data set; None if its owner has stated none."""
        return self.budgets.get(self.name)

    @property
    def place(self) -> Path:
        """Where everything about this data set lies."""
        return self.folder / self.name

    @staticmethod
    def from_toml(path: Path) -> Policy:
        """What a node.toml says; relative paths in it are relative to it."""
        try:
            found = tomllib.loads(path.read_text())
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}. Give the node.toml of this node.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadValue(f"{path} is not TOML: {error}.") from None
        try:
            return _policy(found, path.parent)
        except BadValue as error:
            raise BadValue(f"{path}: {error}") from None


def _policy(found: Mapping[str, Any], home: Path) -> Policy:
    _known("", found, {"node", "allow", "server", "records"})
    node, allow = _table("node", found), dict(_table("allow", found))
    _known("node", node, {"client", "data", "name", "folder", "reply_seconds"})
    if missing := [name for name in ("client", "data", "name") if name not in node]:
        raise BadValue(f"[node] lacks {' and '.join(missing)}. Say which client this is, and what its data are.")
    sets, total = _table("allow.data", {"allow.data": allow.pop("data", {})}), allow.pop("total", None)
    limits = {part.name: part for part in dataclasses.fields(Policy)[4:] if part.name not in _ELSEWHERE}
    _known("allow", allow, {*limits, "data", "total"})
    data = _typed("node.data", node["data"], "str")
    return Policy(
        client=_typed("node.client", node["client"], "int"),
        data=data if is_import_path(data) else str(home / data),
        name=_typed("node.name", node["name"], "str"),
        folder=home / _typed("node.folder", node.get("folder", "."), "str"),
        **{name: _typed(f"allow.{name}", value, str(limits[name].type)) for name, value in allow.items()},
        budgets={name: _budget(f"allow.data.{name}", value) for name, value in sets.items()},
        total=None if total is None else _budget("allow.total", total),
        records=_records(_table("records", found)) if "records" in found else None,
        reply_seconds=_typed("node.reply_seconds", node["reply_seconds"], "float") if "reply_seconds" in node else None,
    )


_ELSEWHERE = {"budgets", "total", "records", "reply_seconds"}  # fields that are no keys of [allow] by their names


def _records(table: Mapping[str, Any]) -> DeclaredRecords:
    parts = {part.name: part for part in dataclasses.fields(DeclaredRecords)}
    _known("records", table, set(parts))
    if missing := [name for name in ("task", "outputs", "input_shape") if name not in table]:
        raise BadValue(f"[records] lacks {' and '.join(missing)}. Declare what a record is; sfumato deploy writes it.")
    return DeclaredRecords(
        **{name: _typed(f"records.{name}", value, str(parts[name].type)) for name, value in table.items()}
    )


def _budget(where: str, found: Any) -> Budget:
    table = _table(where, {where: found})
    _known(where, table, {"epsilon", "delta", "unit"})
    if "epsilon" not in table:
        raise BadValue(f"[{where}] lacks epsilon. Give the most that may be spent; inf, if there is to be no limit.")
    epsilon = _typed(f"{where}.epsilon", table["epsilon"], "float")
    if not epsilon > 0.0:
        raise BadValue(f"{where}.epsilon={epsilon}: a budget is positive, e.g. 2.0; inf, if there is to be no limit.")
    delta = check_delta(_typed(f"{where}.delta", table.get("delta", default_delta(None)), "float"))
    unit = _typed(f"{where}.unit", table.get("unit", str(Unit.CLIENT)), "str")
    if unit not in list(Unit):
        raise BadValue(f"{where}.unit={unit!r}: {nearest(unit, Unit)}")
    return Budget(epsilon, delta, Unit(unit))


def _table(name: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    table = found.get(name, {})
    if not isinstance(table, dict):
        raise BadValue(f"{name} is a {type(table).__name__}. Write a table: [{name}].")
    return table


def _known(where: str, found: Mapping[str, Any], known: set[str]) -> None:
    for name in found:
        if name not in known:
            place = f"[{where}] has" if where else "it has"
            raise BadValue(f"{place} {name!r}, which nothing here knows. {nearest(name, known)}")


def _typed(key: str, value: Any, wanted: str) -> Any:
    if not wanted.startswith("tuple"):
        return typed(key, wanted, value)
    if wanted.startswith("tuple[int"):
        if isinstance(value, list) and all(type(one) is int for one in value):
            return tuple(value)
        raise BadValue(f"{key}={value!r}: a list of whole numbers is needed, e.g. [1, 28, 28]; [] for a single number.")
    if isinstance(value, list) and all(type(one) is str for one in value):
        return tuple(value)
    raise BadValue(f"{key}={value!r}: a list of names in quotes is needed.")


def _at_least(key: str, value: int, least: int) -> None:
    if value < least:
        raise BadValue(f"{key}={value}: a whole number of at least {least} is needed.")
