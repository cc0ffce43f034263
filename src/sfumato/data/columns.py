"""How the columns of a table become records: declared, so that nothing is learnt from clients' rows.

| declared                                   | a column becomes                                                        |
|--------------------------------------------|-------------------------------------------------------------------------|
| nothing                                    | its numbers as they are; true and false are 1 and 0                     |
| `scale={"age": (0, 100)}`                  | one number from -1 to 1; what lies outside is moved to the nearer end   |
| `scale={"day": ("2020-01-01", "2026-01-01")}` | a date, in the same way                                              |
| `categories={"sex": ["f", "m"]}`           | one number for each value, 1 where a row has it; `"*"` stands for any other |
| `fill={"age": 50}`                         | the same, with this value where a row has none                          |
"""

from __future__ import annotations

import datetime
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from sfumato.errors import BadValue, DataError, nearest

_UNNAMED = re.compile(r"Unnamed: \d+(_level_\d+)?")  # what pandas calls a column without a name
_MANGLED = re.compile(r"(.+)\.\d+")  # and the second of two columns of one name
OTHER = "*"  # a category that stands for every value that has none of its own, and for none at all
End: TypeAlias = float | str
_RANGE = "scale={%r: (0, 100)}, or two dates such as ('2020-01-01', '2026-01-01')"


def as_text(value: object) -> str:
    """A value of a category, class or id as text: 7, 7.0 and " 7" are one; so are letters that Unicode writes in two ways.

    >>> as_text(7.0), as_text(" north "), as_text(True)
    ('7', 'north', 'True')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return unicodedata.normalize("NFC", str(value)).strip()


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are the client, the targets and the inputs, and how each is written as numbers.

    All of it is public: declared here, or learnt from rows that are (`learnt_from` names them). Without `features` they are all
    columns but the client's and the targets, in the order of the table. `classes` are the values of the target in the order of
    the model's outputs, or how many there are where rows hold 0, 1, 2 and so on. With `numbers` targets are numbers to be met,
    also where all of them are whole.

    >>> columns = Columns(target="ill", client="hospital", categories={"sex": ["f", "m"]}, classes=["no", "yes"])
    >>> columns.targets, columns.outputs, columns.categories
    (('ill',), 2, {'sex': ('f', 'm')})
    """

    target: str | Sequence[str]
    client: str = ""
    features: Sequence[str] = ()
    classes: Sequence[Any] | int = ()
    categories: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    scale: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fill: Mapping[str, Any] = field(default_factory=dict)
    numbers: bool = False
    learnt_from: str = ""

    def __post_init__(self) -> None:
        given = self.target if isinstance(self.target, str) else _names("target", self.target)
        held: dict[str, Any] = {"target": given, "features": _names("features", self.features)}
        held["classes"] = _classes(self.classes)
        held["categories"] = {name: _values(name, values) for name, values in _table("categories", self.categories)}
        held["scale"] = {name: _ends(name, ends) for name, ends in _table("scale", self.scale)}
        held["fill"] = dict(_table("fill", self.fill))
        for name, value in held.items():
            object.__setattr__(self, name, value)
        if not self.targets or not all(self.targets):
            raise BadValue("no target: say which column a model learns to tell, e.g. target='ill'.")
        if self.classes and len(self.targets) > 1:
            raise BadValue(
                f"classes are those of one target, and there are {len(self.targets)}. Leave classes out: several targets are "
                "numbers, or labels that hold (1) or not (0)."
            )
        roles = [*self.targets, *self.features, *([self.client] if self.client else [])]
        if twice := [name for name in roles if roles.count(name) > 1]:
            raise BadValue(f"the column {twice[0]!r} is named twice among client, target and features. Name it once.")
        if both := [name for name in self.categories if name in self.scale]:
            raise BadValue(f"the column {both[0]!r} has categories and a scale. Declare one of them.")

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else tuple(self.target)

    @property
    def outputs(self) -> int:
        """How many outputs a model needs, by what is declared; 0 if that does not say it."""
        if self.classes:
            return self.classes if isinstance(self.classes, int) else len(self.classes)
        return len(self.targets) if self.numbers or not isinstance(self.target, str) else 0

    @property
    def width(self) -> int:
        """How many numbers the inputs of a record are."""
        return sum(len(self.categories.get(name, (name,))) for name in self.features)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee must add."""
        return (f"the records of {self.learnt_from} are public: nothing hides them",) if self.learnt_from else ()

    def check_names(self, header: Sequence[str], what: str) -> None:
        """Refuse a table in which a name is there twice, or none of those that are declared.

        The first line of a table without names is somebody's record: none of it is shown.
        """
        declared = dict.fromkeys([*self.targets, *([self.client] if self.client else []), *self.features])
        if not any(name in header for name in declared):
            raise BadValue(
                f"{what} has no column {', '.join(map(repr, declared))}. Name the columns as they are in its first line, or write "
                "their names there."
            )
        for name in dict.fromkeys(header):
            if len(places := _places(header, name)) > 1:
                raise BadValue(
                    f"{what} has {len(places)} columns {name!r}, in places {_and(places)}: a target could be an input too. Rename "
                    "all but one, or delete them."
                )

    def _check_inputs(self, header: Sequence[str], what: str) -> None:
        """Refuse inputs that are not named, where one may be another column by mistake, such as the target."""
        if self.features:
            return
        fix = "Rename or delete it, or name the inputs: features=[...]."
        spellings: dict[str, str] = {}
        for place, name in enumerate(header, 1):
            if not name or _UNNAMED.fullmatch(name):
                raise BadValue(f"{what}: the column in place {place} has no name, such as one of row numbers. {fix}")
            mangled = _MANGLED.fullmatch(name)
            other = spellings.setdefault(_plainest(name), name)
            if other != name or (mangled and mangled.group(1) in header):
                other = other if mangled is None or other != name else mangled.group(1)
                raise BadValue(
                    f"{what}: the columns {other!r} and {name!r}, in places {_and([*_places(header, other), place])}, may be one "
                    f"column twice. {fix}"
                )

    def of(self, header: Iterable[str], what: str) -> Columns:
        """The same for a table with these columns: all are there, and `features` says which are inputs."""
        there = list(header)
        self.check_names(there, what)
        self._check_inputs(there, what)
        features = self.features or tuple(name for name in there if name not in (*self.targets, self.client))
        named = {"client": [self.client] if self.client else [], "target": self.targets, "features": features}
        for role, names in {**named, "categories": self.categories, "scale": self.scale, "fill": self.fill}.items():
            if missing := [name for name in names if name not in there]:
                raise BadValue(f"{role}: {what} has no column {missing[0]!r}. {nearest(missing[0], there)}")
        if not features:
            raise BadValue(f"{what} has no column beside the client and the target, so there is nothing to learn from.")
        for role, table in (("categories", self.categories), ("scale", self.scale)):
            if idle := [name for name in table if name not in features]:
                said = "its values are declared with classes=[...]" if idle[0] in self.targets else "it is no input"
                raise BadValue(f"{role}: {idle[0]!r} is not among the features: {said}. Leave it out.")
        if idle := [name for name in self.fill if name not in features]:
            raise BadValue(f"fill: {idle[0]!r} is not among the features, and only inputs are filled. Leave it out.")
        return replace(self, features=features)

    def to_table(self) -> dict[str, Any]:
        """What stands in run.toml under [data.columns]; `Columns(**table)` gives it again."""
        found = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: _plain(value) for name, value in found.items() if value not in ((), {}, "", False)}

    @staticmethod
    def of_table(table: Mapping[str, Any], where: str = "data.columns") -> Columns:
        """What a TOML table says."""
        known = [part.name for part in fields(Columns)]
        if unknown := [name for name in table if name not in known]:
            raise BadValue(f"{where}.{unknown[0]}: there is no such key. {nearest(unknown[0], known)}")
        if "target" not in table:
            raise BadValue(f"{where}: which column does a model learn to tell? Give target, or --target-column NAME.")
        return Columns(**table)


def read_columns(path: str | Path) -> dict[str, Any]:
    """What a TOML file declares of a table's columns, as [data.columns] of run.toml has it."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"the columns {path} cannot be read: {error.strerror}. Give a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"the columns {path} are not TOML: {error}.") from None


def _places(header: Sequence[str], name: str) -> list[int]:
    return [place for place, one in enumerate(header, 1) if one == name]


def _and(places: Sequence[int]) -> str:
    return f"{', '.join(map(str, places[:-1]))} and {places[-1]}"


def _plainest(name: str) -> str:
    """What spellings of one name have in common: neither capitals nor spaces.

    >>> _plainest("Ill "), _plainest("is ill") == _plainest("IsIll")
    ('ill', True)
    """
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _names(role: str, given: Any) -> tuple[str, ...]:
    listed = (given,) if isinstance(given, str) else given
    if not isinstance(listed, tuple | list) or not all(isinstance(name, str) for name in listed):
        raise BadValue(f"{role}={given!r}: give the names of columns, e.g. [{'age'!r}].")
    return tuple(listed)


def _table(role: str, given: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise BadValue(f"{role}={given!r}: give a mapping from the names of columns.")
    return given.items()


def _classes(given: Any) -> tuple[str, ...] | int:
    if isinstance(given, int) and not isinstance(given, bool):
        if given < 0 or given == 1:
            raise BadValue(f"classes={given}: there are at least 2, and rows hold 0 to one less than their number.")
        return given or ()
    found = _values("the target", given, "classes") if given else ()
    if len(found) == 1:
        raise BadValue(f"classes={given!r}: there are at least 2. Give all values that the target may have.")
    if OTHER in found:
        raise BadValue(f"classes={given!r}: a class is a value; {OTHER!r} stands for any other in categories only.")
    return found


def _values(name: str, given: Any, role: str = "categories") -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, tuple | list) or not given:
        raise BadValue(f"{role} of {name!r}: {given!r} is no list of values. Give all that may occur, e.g. ['f', 'm'].")
    found = tuple(map(as_text, given))
    if len(set(found)) < len(found):
        raise BadValue(f"{role} of {name!r}: {list(found)} names a value twice. Name each once.")
    return found


def _ends(name: str, given: Any) -> tuple[End, End]:
    ends = tuple(given) if isinstance(given, tuple | list) else ()
    if len(ends) == 2 and all(isinstance(end, str | datetime.date) for end in ends):
        try:
            first, last = (datetime.datetime.fromisoformat(str(end)) for end in ends)
            if first < last:
                return str(ends[0]), str(ends[1])
        except (ValueError, TypeError):
            pass
    elif len(ends) == 2 and all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        low, high = map(float, ends)
        if low < high and math.isfinite(high - low):
            return low, high
    raise BadValue(
        f"scale of {name!r}: {given!r} is no range. Give its two ends, the lower first: {_RANGE % name}. What lies outside is "
        "moved to the nearer end."
    )
