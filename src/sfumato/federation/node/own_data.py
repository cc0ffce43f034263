"""A node's own records: one client, in a folder, in a file, or as a function of the owner's gives it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from sfumato.data.apart import DeclaredRecords, checked, mapped_apart
from sfumato.data.columns import Columns, read_columns
from sfumato.data.faults import Faults, out_of_memory
from sfumato.data.population import Population
from sfumato.data.record_map import as_record_map
from sfumato.data.records import READERS, Client, Records, read_client
from sfumato.data.tables import is_table, read_apart
from sfumato.errors import BadValue, DataError
from sfumato.features import parse_features
from sfumato.federation.node.rules import Refused
from sfumato.imports import is_import_path
from sfumato.run.request import DataRequest
from sfumato.run.source import find_source


class NoData(DataError):
    """Records that are not where node.toml says: nothing was read, so nothing depends on any of them."""


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
        raise NoData(
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
    return Population(path.parent.name, 1, partial(_rows, path, columns), is_fixed=True)


def _rows(path: Path, columns: Columns, number: int) -> Client:
    return Client(read_apart(path, columns))


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
    """The node's records as a run wants them: loaded, checked one by one and mapped once, and again whenever they have changed."""

    def __init__(self, find: Find, path: str = "") -> None:
        self.find, self.path = find, path
        self._last: tuple[object, Records, Faults] | None = None

    def __call__(self, declared: DeclaredRecords, features: str, example: Records) -> tuple[Records, Faults]:
        """The records after features, of the example's shape, and those of them that are at fault and count as zero."""
        data, versions = self.find(), _versions(self.path)
        name = (versions, declared, features)
        if self._last is None or self._last[0] != name or not data.is_fixed:
            self._last = None
            records, faults = checked(data.client(0).train, declared)
            if features:
                records = mapped_apart(records, as_record_map(parse_features(features)), example.x, faults)
            if _versions(self.path) != versions:
                raise Refused("refused.changed", "the records changed while they were read")
            self._last = name, records, faults
        _, records, faults = self._last
        return records, Faults(dict(faults.records))


def blames_no_record(error: BaseException | None) -> bool:
    """Whether no single record can be blamed for records that cannot be loaded: no memory is left, or a file cannot be read."""
    if out_of_memory(error):
        return True
    while error is not None:
        if isinstance(error, NoData | OSError):
            return True
        error = error.__cause__
    return False


def _versions(words: str) -> list[tuple[str, int, int]]:
    """What tells that files were changed: names, sizes and times; nothing, where the data are no files."""
    path = Path(words)
    if not words or is_import_path(words):
        return []
    files = sorted(path.iterdir()) if path.is_dir() else [path, path.with_suffix(".toml")]
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
