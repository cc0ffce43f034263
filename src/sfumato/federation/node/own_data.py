"""A node's own records: one client, in a folder, in a file, or as a function of the owner's gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from sfumato.data.columns import Columns, read_columns
from sfumato.data.population import Population
from sfumato.data.records import READERS, Client, read_client
from sfumato.data.tables import is_table, population_of, read_table
from sfumato.errors import BadValue, DataError
from sfumato.features import parse_features
from sfumato.federation.node.rules import Refused
from sfumato.federation.terms import Terms
from sfumato.imports import is_import_path
from sfumato.run.request import DataRequest
from sfumato.run.source import find_source

Find: TypeAlias = Callable[[], Population]  # the data as they are now: one client, not loaded yet


def own_data(path: str) -> Find:
    """How to find the data that node.toml names. Files may change while a node runs, and are looked at each time."""
    if is_import_path(path):
        return partial(_imported, path, [])
    return partial(_in_files, Path(path))


def _in_files(path: Path) -> Population:
    """One client: a file, or a folder with one."""
    if is_table(str(path)) and path.is_file():
        return _in_table(path)
    found = path if path.is_dir() else path.parent
    files = [path] if not path.is_dir() else []
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in READERS and not file.name.startswith("."))
    if len(files) != 1 or not files[0].is_file() or files[0].suffix not in READERS:
        raise DataError(
            f"{path}: {len(files)} files of records. A node holds one client: give one file ({', '.join(READERS)}) with x and y, "
            "a folder with one, or a table (.csv, .parquet) with its columns declared in a .toml of the same name beside it."
        )
    return Population(found.name, 1, partial(_read, files[0]), is_fixed=True)


def _in_table(path: Path) -> Population:
    """All rows of a table, whose columns the owner declares beside it; they name no client: all are the owner's."""
    declared = path.with_suffix(".toml")
    columns = Columns.of_table(read_columns(declared), str(declared))
    if columns.client:
        raise BadValue(
            f"{declared}: client={columns.client!r}, but a node holds one client. Leave it out, or name the features."
        )
    return population_of(read_table(path, columns), columns, 1, path.parent.name)


def _read(file: Path, number: int) -> Client:
    return read_client(file)


def _imported(path: str, known: list[Population]) -> Population:
    """What the owner's function gives, asked for once: what is in memory then is what is named and used."""
    if not known:
        # The number of outputs is the server's to say; it is asked for here only because data of one's own do not say it.
        found = find_source(DataRequest(name=path, clients=1, outputs=1), domain=False).population
        assert found is not None, "data of one's own are a population"
        if found.size != 1:
            raise BadValue(f"{path} gives {found.size} clients. A node holds one: give a single (x, y).")
        known.append(found)
    return known[0]


class Loaded:
    """The node's records as a run wants them: loaded and mapped once, and again whenever they have changed."""

    def __init__(self, find: Find, path: str = "") -> None:
        self.find, self.path = find, path
        self._last: tuple[object, Population] | None = None

    def __call__(self, data: Population, number: int, terms: Terms) -> Population:
        """The population of a run, of which one client is here; refuses records that are not of the shape in the terms."""
        name = (_versions(self.path), terms.features, terms.clients)
        if self._last is None or self._last[0] != name or not data.is_fixed:
            self._last = None
            people = _as_client(data, number, terms.clients, terms.features)
            if _versions(self.path) != name[0]:
                raise Refused("refused.changed", "the records changed while they were read")
            self._last = name, people
        people = self._last[1]
        records = people.client(number).train
        if records.inputs is not None:
            raise Refused(
                "refused.shape", f"records of several inputs, {records.inputs}, where the terms say one tensor"
            )
        for own, declared in zip(records, terms.example, strict=True):
            if own.shape[1:] != declared.shape[1:] or own.dtype != declared.dtype:
                raise Refused(
                    "refused.shape",
                    f"records of shape {tuple(own.shape[1:])} and type {own.dtype}, where the terms say "
                    f"{tuple(declared.shape[1:])} and {declared.dtype}",
                )
        return people


def _versions(words: str) -> list[tuple[str, int, int]]:
    """What tells that files were changed: names, sizes and times; nothing, where the data are no files."""
    path = Path(words)
    if not words or is_import_path(words):
        return []
    files = sorted(path.iterdir()) if path.is_dir() else [path, path.with_suffix(".toml")]
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]


def _as_client(own: Population, number: int, clients: int, features: str) -> Population:
    client = (own.mapped(parse_features(features)) if features else own).client(0)

    def load(asked: int) -> Client:
        if asked != number:
            raise DataError(f"client {asked}: its data are with another owner.")
        return client

    return replace(own, size=clients, load=load)
