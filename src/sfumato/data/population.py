"""Private data stays in a `Population`, one client at a time; public data is another type, and the two never mix."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch

from sfumato.data.columns import Columns
from sfumato.data.of_others import Declared, Joined, Mapped, mapped
from sfumato.data.record_map import Map, RecordFailed, as_record_map, unchanged
from sfumato.data.records import READERS, Client, Records, as_client, kind, read_client
from sfumato.digest import digest
from sfumato.errors import BadValue, CodeFailed, DataError
from sfumato.imports import import_path

Ids: TypeAlias = Iterable[object] | None
_FOUND = "which clients there are is public: their ids were found in the data"
_LISTED = "which clients there are is public: whoever is not in the list leaves its number to the next"
_SETTINGS = "settings go by their numbers"
_FEW = 64 * 2**20  # bytes of files that may be read just to look at them
__all__ = ["Client", "Population", "PublicData", "Records", "require_population", "require_public"]


@dataclass(frozen=True)
class PublicData:
    """Records that anybody may use: a published test split, queries, a mask's data.

    Where features have been made of pictures, `pictures` are these as they were, one for each record, to be shown.
    """

    name: str
    records: Records = field(repr=False)
    pictures: torch.Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.records, Records):
            raise BadValue(
                f"PublicData({self.name!r}): records is {kind(self.records)}. Give Records(x, y) that anybody may see; "
                "what clients hold is a Population."
            )
        if self.pictures is not None and len(self.pictures) != self.records.count:
            raise BadValue(
                f"PublicData({self.name!r}): {len(self.pictures)} pictures of {self.records.count} records. Give one for each."
            )

    @staticmethod
    def from_dataframe(frame: Any, columns: Columns, name: str = "test") -> PublicData:
        """The rows of a pandas frame that anybody may see, written as the clients' are: `columns=population.columns`."""
        from sfumato.data.tables import public_of

        return public_of(frame, columns, name)

    @property
    def declared(self) -> str:
        """What a guarantee says where these records decide a release."""
        return f"the records of {self.name} are public: nothing hides them"


@runtime_checkable
class Origin(Protocol):
    """What names a population's data, so that another process builds it from where they lie. It holds no record."""

    def build(self) -> Population:
        """The population, from data that lie where this process runs."""


@dataclass(frozen=True, repr=False)
class Population:
    """Clients by number, loaded when drawn.

    `size` is declared, never counted: under add/remove the true count is itself private. `is_fixed` says that a client has the
    same data whenever it is loaded.
    `identity` names the people, whatever their data are now: what runs cost one client adds up only if client number i is the
    same in all of them. None means that nobody said who they are, and guarantees that need it say so. `windows` is how many
    records may hold the same part of the data, such as an hour of a series; all of them one client's, if `own_windows`.

    >>> ones = Population.from_function(lambda client: (torch.ones(3, 2), torch.zeros(3)), size=1_000_000, name="ones")
    >>> ones.client(999_999).train.count
    3
    """

    name: str
    size: int
    load: Callable[[int], Any] = field(repr=False)
    _: KW_ONLY
    identity: str | None = field(default=None, repr=False)
    ids: tuple[int | str, ...] = field(
        default=(), repr=False
    )  # who they are, where anybody said so; a folder's file names
    source: str = field(default="", compare=False)  # the folder or import path that gives it again, if one does
    windows: int = field(default=1, repr=False)
    own_windows: bool = field(default=True, repr=False)
    assumes: tuple[str, ...] = field(default=(), repr=False)  # what guarantees must add
    example: Records | None = field(
        default=None, repr=False, compare=False
    )  # shapes and types, where they are declared
    origin: Origin | None = field(default=None, repr=False, compare=False)  # what builds it elsewhere, if not `source`
    is_fixed: bool = field(default=False, repr=False, compare=False)
    at_hand: int = field(
        default=0, repr=False, compare=False
    )  # so many are in memory, or nearly: to look at them costs little
    columns: Columns | None = field(default=None, repr=False, compare=False)  # of a table: how rows became records
    found_ids: bool = field(
        default=False, repr=False, compare=False
    )  # `ids` are those that rows have: nobody declared them
    listed: bool = field(default=False, repr=False, compare=False)  # whoever is not there leaves its number to the next
    counted: bool = field(default=False, repr=False, compare=False)  # nobody declared `size`: guarantees call it public

    def __post_init__(self) -> None:
        if not callable(self.load):
            raise BadValue(
                f"Population({self.name!r}): load is {kind(self.load)}. Give a function from client number to data."
            )
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise BadValue(f"Population({self.name!r}): size={self.size!r} must be a positive whole number of clients.")

    def __repr__(self) -> str:
        return f"Population({self.name!r}, {self.size:,} client{'s' * (self.size != 1)})"

    def caution(self, unit: str, *, settings: bool = False, numbered: bool = False) -> tuple[str, ...]:
        """What a guarantee for one unit must add: what the map of records assumes, and where records overlap that to hide a window
        hides no part of it that others hold.

        Clients' numbers may decide something: a round's own `settings` do so where pieces go by them, and messages are `numbered`
        for a server that sees whose is whose. Where numbers are places among the ids that rows have, a client without a row moves
        all who come after, which no noise hides; in a list, a client who is not in it does. (What is proven against a server
        has every client of a list in its place.)
        """
        known: tuple[str, ...] = ()
        if self.counted:
            known += (f"the number of clients is public: {self.size}, as {self.name!r} has them",)
        if self.found_ids and (settings or numbered):
            known += (f"{_FOUND}, and {_SETTINGS if settings else 'number the messages'}",)
        elif self.listed and settings and unit == "client":
            known += (f"{_LISTED}, and {_SETTINGS}",)
        if self.windows == 1 or (unit == "client" and self.own_windows):
            return (*self.assumes, *known)
        return (
            *self.assumes,
            *known,
            f"records are windows that overlap: the same hour or character is in up to {self.windows} of them, and what hides one "
            f"{unit} does not hide it",
        )

    def client(self, number: int) -> Client:
        """The data of one client, checked; a client may have no records at all.

        Numbers in double precision become float32, as rows are, and whole-number targets become int64.
        """
        if not 0 <= number < self.size:
            raise BadValue(
                f"client {number} does not exist: population {self.name!r} has clients 0 to {self.size - 1}."
            )
        try:
            loaded = self.load(number)
        except RecordFailed as failed:
            raise failed.of(f"client {number} of {self.name!r}") from failed.__cause__
        except (BadValue, DataError):
            raise
        except Exception as error:
            raise CodeFailed(
                f"client {number} of {self.name!r} could not be loaded: {type(error).__name__}. Fix the loader or its data."
            ) from error
        return as_client(loaded, f"client {number} of {self.name!r}")

    def declared(self, size: int) -> Population:
        """The same clients, of whom the declared number says how many there may be; whoever is not there has no records.

        So a client that is missing adds nothing when it is drawn. It leaves every other in its place if it comes last, or if the
        ids of all who may be there are declared.
        """
        if size < self.size:
            raise BadValue(
                f"clients={size}, but {self.name!r} has {self.size}: which of them take part would depend on who is there. "
                f"Declare at least {self.size}."
            )
        known = replace(self, counted=False)
        return known if size == self.size else replace(known, size=size, load=Declared(self), origin=None)

    def mapped(self, function: Map) -> Population:
        """The same people, each record's inputs mapped by themselves; what a client becomes is kept, if its data cannot change.

        A function or module of your own is called for one record at a time, [1, ...] to [1, ...]: one that saw a batch could
        let a record change the others, and no clip would bound that.
        """
        function = as_record_map(function)
        assumes = (*self.assumes, *getattr(function, "assumptions", ()))
        shape = self.example and mapped(function, self.example)
        same = replace(self, source="", origin=None, assumes=assumes, example=shape, at_hand=0)
        return replace(same, load=Mapped(self, function))

    def kept(self) -> Population:
        """The same people, whose records stay in memory once they were loaded, if they cannot change and are not too many."""
        return replace(self, load=Mapped(self, unchanged))

    def joined(self) -> Population:
        """One client, who holds the records of all."""
        identity = self.identity and digest("joined", self.identity)
        named = replace(self, identity=identity, ids=(), source="", own_windows=False)
        alone: dict[str, Any] = {"counted": False, "found_ids": False, "listed": False, "at_hand": 0}
        return replace(named, size=1, load=Joined(self), origin=None, **alone)

    def with_public_ids(self) -> Population:
        """The same, for settings that name single clients: where nobody declared who there is, guarantees say that it is public."""
        if not (self.found_ids or self.listed):
            return self
        known = f"{_FOUND if self.found_ids else _LISTED}, and {_SETTINGS}"
        return replace(self, assumes=(*self.assumes, known), found_ids=False, listed=False)

    def with_ids(self, ids: Ids) -> Population:
        """The same clients with these ids, if there are any: one number or text each, in the clients' order."""
        if ids is None:
            return self
        if isinstance(ids, str):
            raise BadValue(f"ids={ids!r} is one text. Give one id per client, e.g. a list of names.")
        listed: list[Any] = list(ids)
        wrong = next(
            (n for n, one in enumerate(listed, 1) if isinstance(one, bool) or not isinstance(one, int | str)), None
        )
        if wrong is not None:
            raise BadValue(
                f"ids: number {wrong} of them is {kind(listed[wrong - 1])}. Give a number or a text that means the same person in "
                "every run."
            )
        if len(listed) != self.size or len(set(listed)) != len(listed):
            raise BadValue(
                f"{len(listed)} ids, {len(set(listed))} of them different, for the {self.size} clients of {self.name!r}. "
                "Give each client one of its own."
            )
        return replace(self, identity=digest("ids", json.dumps(listed)), ids=tuple(listed))

    @staticmethod
    def from_list(clients: Any, name: str = "list", ids: Ids = None) -> Population:
        """Clients held in memory, each `(x, y)` or `(x, y, x_test, y_test)`. `ids` say who they are, one for each.

        Where a record has several inputs, x is a dict or a tuple of tensors; a dict of inputs and `labels` will do for both.

        >>> Population.from_list([(torch.ones(3, 2), torch.zeros(3))] * 5, name="five").size
        5
        """
        if isinstance(clients, PublicData | Population | torch.Tensor | np.ndarray | str):
            raise BadValue(f"Population.from_list: got {kind(clients)}. Give a list with one (x, y) per client.")
        checked = [as_client(item, f"client {number} of {name!r}") for number, item in enumerate(clients)]
        found = Population(name, len(checked), checked.__getitem__, is_fixed=True, at_hand=len(checked), listed=True)
        return found.with_ids(ids)

    @staticmethod
    def from_dataframe(
        frame: Any,
        *,
        client: str,
        target: str | list[str],
        clients: int | Iterable[object] | None = None,
        features: list[str] | None = None,
        classes: list[Any] | int | None = None,
        categories: dict[str, Any] | None = None,
        scale: dict[str, Any] | None = None,
        fill: dict[str, Any] | None = None,
        public: Any = None,
        name: str = "frame",
    ) -> Population:
        """The rows of a pandas frame, one record each; the column `client` says whose it is, and gives the ledger its ids.

        `clients` declares the ids of all who may be there, or how many they may be; whoever is not there has no records. Without
        it guarantees add that their number is public. `Columns` says what the other words mean: all is declared, or learnt from
        the frame `public`, whose rows guarantees then call public. How rows became records is kept in `columns`.
        """
        from sfumato.data.tables import population_of

        columns = Columns(
            target=target if isinstance(target, str) else tuple(target),
            client=client,
            features=tuple(features or ()),
            classes=classes if isinstance(classes, int) else tuple(classes or ()),
            categories=categories or {},
            scale=scale or {},
            fill=fill or {},
        )
        return population_of(frame, columns, clients, name, public, f"{name}/public")

    @staticmethod
    def from_table(
        path: str | Path, columns: Columns, clients: int | Iterable[object] | None = None, name: str | None = None
    ) -> Population:
        """The rows of a .csv or .parquet file, as `from_dataframe` has them; other processes read the file for themselves."""
        from sfumato.data.tables import Table, population_of, read_table

        declared = clients if clients is None or isinstance(clients, int) else tuple(map(str, clients))
        found = population_of(read_table(path, columns), columns, declared, name or Path(path).stem)
        origin = Table(str(Path(path).resolve()), columns, declared)
        return replace(found, source=str(path), origin=origin)

    @staticmethod
    def from_datasets(
        datasets: Iterable[Any],
        *,
        target: str | None = None,
        input: str | None = None,
        clients: int | None = None,
        ids: Ids = None,
        name: str = "datasets",
    ) -> Population:
        """One data set per client: a torch Dataset with a length, a Hugging Face Dataset, a list of records, or a pair of arrays.

        A record is `(x, y)`, or a dictionary in which `target` names y (by default "y" or "labels") and all others are inputs, or
        the one that `input` names.
        All are read at once; `sfumato.data.records_of` reads one of them, for `from_function`.
        `clients` declares how many there may be; without it guarantees add that their number is public.
        """
        from sfumato.data.datasets import records_of

        if isinstance(datasets, PublicData | Population | torch.Tensor | np.ndarray | str | dict):
            raise BadValue(f"Population.from_datasets: got {kind(datasets)}. Give a list with one data set per client.")
        read = [
            Client(records_of(one, f"client {number} of {name!r}", target, input))
            for number, one in enumerate(datasets)
        ]
        found = Population.from_list(read, name, ids)
        return replace(found, counted=True) if clients is None else found.declared(clients)

    @staticmethod
    def from_function(function: Callable[[int], Any], size: int, name: str = "function", ids: Ids = None) -> Population:
        """Clients made by a function of their number; nothing is called before a client is drawn.

        `ids` say who they are (`range(size)`, if a number always means the same person).
        """
        return Population(name, size, function).with_ids(ids)

    @staticmethod
    def from_folder(path: str | Path, name: str | None = None) -> Population:
        """One file per client (.pt, .npz or .safetensors) with x and y, and x_test and y_test if it has them.

        Client 0 is the first file by name; hidden files, whose names begin with a dot, are nobody's. The names are who the
        clients are: new data go into the file of the same name.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise DataError(f"no folder {folder}. Give a folder with one .pt, .npz or .safetensors file per client.")
        files = sorted(file for file in folder.iterdir() if file.suffix in READERS and not file.name.startswith("."))
        if not files:
            raise DataError(f"no client in {folder}. Put one .pt, .npz or .safetensors file per client there.")
        name, ids = name or folder.resolve().name, tuple(file.name for file in files)
        identity = digest("files", list(ids))
        named = Population(name, len(files), partial(_read, files), identity=identity, ids=ids, source=str(path))
        return replace(named, is_fixed=True, at_hand=len(files) if _are_few(files) else 0, listed=True)

    @staticmethod
    def from_import(path: str, size: int | None = None, ids: Ids = None) -> Population:
        """What `module:name` names: a population or a list, a function without arguments that returns one, or, with
        `size`, a function from client number to data.
        """
        found = import_path(path)
        if callable(found) and not isinstance(found, Population):
            if _takes_a_number(found):
                if size is None:
                    raise BadValue(
                        f"{path} is a function of the client number. Say how many clients there are with size=."
                    )
                return replace(Population.from_function(found, size, path, ids), source=path)
            found = found()
        if isinstance(found, Population):
            return replace(found.with_ids(ids), source=path)
        if isinstance(found, list | tuple):
            return replace(Population.from_list(found, name=path, ids=ids), source=path)
        raise BadValue(f"{path} gives {kind(found)}. It must give a Population or a list with one (x, y) per client.")


def require_population(value: object, where: str) -> Population:
    """`value` if it is a population; public data is refused there."""
    if isinstance(value, Population):
        return value
    raise BadValue(f"{where} needs a Population, not {kind(value)}. Make one with Population.from_list, say.")


def require_public(value: object, where: str) -> PublicData:
    """`value` if it is public data; what clients hold is refused there."""
    if isinstance(value, PublicData):
        return value
    raise BadValue(
        f"{where} needs PublicData, not {kind(value)}. Clients' data must not be used where nothing pays for it."
    )


def _takes_a_number(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _are_few(files: Sequence[Path]) -> bool:
    return sum(file.stat().st_size for file in files) <= _FEW


def _read(files: list[Path], number: int) -> Client:
    return read_client(files[number])
