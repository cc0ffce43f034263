"""Settings as TOML has them: what stands in a file, what `--set` says, and how tables are written."""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato.errors import BadValue, DataError

Tables = list[tuple[str, Mapping[str, Any]]]


def tables_of(path: Path) -> dict[str, Any]:
    """What stands in a run.toml."""
    try:
        return parsed(path.read_text(), str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}. Give the run.toml that a run wrote.") from None
    except UnicodeDecodeError as error:
        raise BadValue(f"{path} is not TOML: {error}.") from None


def parsed(text: str, name: str) -> dict[str, Any]:
    """The tables of a text; `name` is what a mistake in it calls it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadValue(f"{name} is not TOML: {error}.") from None


def parse_setting(words: str) -> tuple[str, Any]:
    """`a.b=v` as a key and a value; a value that is not TOML is text.

    >>> parse_setting("options.lr=0.1"), parse_setting("data.name=mnist")
    (('options.lr', 0.1), ('data.name', 'mnist'))
    """
    key, equals, value = words.partition("=")
    if not equals or not key:
        raise BadValue(f"--set {words!r}: write key=value, e.g. --set rounds=60 or --set options.lr=0.1.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def written(tables: Tables, lists: str) -> list[str]:
    """The lines of tables; a nameless one comes first. The one called `lists` may stand there several times."""
    lines: list[str] = []
    for name, table in tables:
        lines += ["", f"[[{name}]]" if name == lists else f"[{name}]"] if name else []
        lines += [f"{_key(key)} = {toml_value(value)}" for key, value in table.items() if value is not None]
    return lines


def nested(name: str, table: Mapping[str, Any]) -> Tables:
    """A table, and those in it."""
    inside = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    own = (name, {key: value for key, value in table.items() if key not in inside})
    return [own, *((f"{name}.{_key(key)}", value) for key, value in inside.items())]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def with_part(table: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """A table with one part of it changed, which may lie in a table within."""
    if not path:
        if not isinstance(value, dict):
            raise BadValue(f"data.columns={value!r}: it is a table, e.g. [data.columns] with target and client.")
        return value
    inner = table.get(path[0], {})
    if len(path) > 1 and not isinstance(inner, Mapping):
        raise BadValue(f"data.columns.{'.'.join(path)}: {path[0]} is {inner!r}, in which nothing can be set.")
    return {**table, path[0]: value if len(path) == 1 else with_part(inner, path[1:], value)}


def typed(key: str, wanted: str, value: Any) -> Any:
    """The value of a key, if it is of the wanted type, as its annotation is written."""
    if "None" in wanted and (value is None or value == "none"):
        return None
    if wanted.startswith("float") and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    for name, kind in (("int", int), ("bool", bool), ("str", str)):
        if wanted.startswith(name) and type(value) is kind:
            return value
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text in quotes"}
    raise BadValue(f"{key}={value!r}: {words[wanted.partition(' ')[0]]} is needed.")


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
