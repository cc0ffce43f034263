"""Data sets by name, read from a folder in their public formats: `load("mnist")`, `build_population(...)`.

The folder is the one that is given, else `SFUMATO_DATA`, else the user's cache. What is there is read as found, and its
counts are recorded; what is not there is downloaded and checked.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfumato.data import celeba, domains, usps, utkface
from sfumato.data.download import SOURCES, download
from sfumato.data.population import Client, Population, PublicData, Records
from sfumato.data.sets import EMNIST_CLASSES, Dataset
from sfumato.data.sets import READERS as PICTURES
from sfumato.data.shakespeare import shakespeare
from sfumato.data.split import partition
from sfumato.data.wind import wind
from sfumato.digest import digest
from sfumato.errors import BadValue, DataError, nearest
from sfumato.key import Key

READERS = {
    **PICTURES,
    "usps": usps.usps,
    **dict.fromkeys(domains.OFFICE_NAMES, domains.office_caltech10),
    **dict.fromkeys(domains.DOMAINNET_NAMES, domains.domainnet),
    "celeba": celeba.celeba,
    **dict.fromkeys(utkface.NAMES, utkface.utkface),
    "shakespeare": shakespeare,
    "gefcom2012-wind": wind,
}
NAMES = tuple(READERS)
DOMAIN_NAMES = (*domains.OFFICE_NAMES, *domains.DOMAINNET_NAMES)
_DIGITS = {"mnist", "emnist-digits", "emnist-mnist"}
# Those with clients of their own, and how they are asked for unless told otherwise.
NATURAL: dict[str, dict[str, Any]] = {
    "shakespeare": {
        "split": "natural",
        "task": "next-character",
        "records_per_client": 20,
    },  # of thousands that a role has
    "gefcom2012-wind": {"split": "natural", "task": "regression", "clients": 7},
    "celeba": {"split": "natural", "task": "multi-label"},
    **{name: {"split": "natural", "clients": len(domains.chosen(name))} for name in DOMAIN_NAMES},
}


def _client(
    dataset: Dataset, parts: list[np.ndarray], test_fraction: float, key: Key, in_order: bool, number: int
) -> Client:
    rows = parts[number]
    if test_fraction == 0:
        return Client(_records(dataset, rows))
    held_out = round(test_fraction * len(rows))
    if in_order:  # the last to test on; those before that overlap with them are left out
        train, test = np.split(rows, [len(rows) - held_out])
        train = train[train < test[0] - dataset.overlap] if held_out else train
    else:
        order = key.child("test", client=number).permutations(1, len(rows))[0]
        test, train = np.split(rows[order], [held_out])
    return Client(_records(dataset, train), _records(dataset, test))


def _records(dataset: Dataset, rows: np.ndarray) -> Records:
    index = torch.from_numpy(rows)
    x, y = (part.index_select(0, index) for part in dataset.pool)  # ten times as fast as pool.x[index]
    return Records(dataset.scaling(x), y)


def build_population(
    dataset: Dataset,
    clients: int,
    split: str,
    key: Key,
    records_per_client: int | None = None,
    test_fraction: float = 0.0,
) -> Population:
    """The pool shared out to clients; a client's tensors are made when it is drawn.

    With `test_fraction` each client keeps that part of its own records to test its own model on: at random, or the last of
    a natural client's, which follow one another.

    >>> build_population(load("digits"), 200, "iid", Key.from_seed(0), records_per_client=7).name
    'digits/iid/200x7'
    """
    if not 0 <= test_fraction < 1:
        raise BadValue(f"test_fraction={test_fraction} must be at least 0 and below 1, e.g. 0.2.")
    parts = partition(split, dataset.pool, clients, key, records_per_client, dataset.own)
    size = f"{clients}x{records_per_client}" if records_per_client else f"{clients}"
    client = partial(_client, dataset, parts, test_fraction, key, split == "natural")
    identity = _identity(dataset, clients, split, key, records_per_client)
    population = Population(f"{dataset.name}/{split}/{size}", clients, client, identity=identity)
    windows, own = dataset.overlap + 1, split == "natural"
    return replace(population, is_fixed=True, windows=windows, own_windows=own, assumes=dataset.assumes)


def _identity(dataset: Dataset, clients: int, split: str, key: Key, records_per_client: int | None) -> str:
    """Who client number i is: the person whose name the data give, or else the records that the split gave it.

    A person stays one with more or fewer of its records. A made-up client is its records, so it is another one as soon as
    anything changes that decides which it gets. Which of its records a client tests on makes it no other client, nor do scaling
    and features.
    """
    if split == "natural":
        return digest(split, dataset.name, dataset.people or dataset.stored, clients, key.digest)
    return digest(split, dataset.name, dataset.stored, clients, records_per_client, key.digest)


def load(name: str, folder: str | Path | None = None, allow_download: bool = True) -> Dataset:
    """The data set of that name.

    >>> load("digits").counts
    {'train': 1400, 'test': 397}
    """
    if name not in NAMES:
        if name == "emnist":
            raise BadValue(
                f"emnist has several splits. Choose one: {', '.join(f'emnist-{s}' for s in EMNIST_CLASSES)}."
            )
        raise BadValue(f"unknown data set {name!r}. {nearest(name, NAMES)}")
    root = data_folder(folder)
    try:
        return READERS[name](name, root)
    except FileNotFoundError:
        if not allow_download:
            raise DataError(_wanted(name, root, "downloads are off")) from None
    try:
        download(SOURCES[name], root)
    except (OSError, DataError) as error:
        raise DataError(_wanted(name, root, f"the download failed: {error}")) from error
    return READERS[name](name, root)


def hold_out(dataset: Dataset, records: int, key: Key, part: str = "validation") -> Dataset:
    """The data set with so many records of its pool, at random, as public data: no client will hold them.

    Where others than the clients gave some (CelebA's validation part), it is those, and the pool stays whole.

    >>> parted = hold_out(load("digits"), 400, Key.from_seed(0))
    >>> parted.pool.count, parted.validation.records.count
    (1000, 400)
    """
    source = dataset.pool if dataset.aside is None else dataset.aside
    if dataset.aside is None and (dataset.own is not None or dataset.validation is not None):
        raise BadValue(
            f"{dataset.name} has a validation part already, or clients of its own, so nothing is set aside. Give other public "
            "records with --public NAME."
        )
    if not 0 < records < source.count:
        raise BadValue(
            f"{records} records set aside as public: the pool of {dataset.name} has {source.count}. Set fewer aside, at least 1."
        )
    order = torch.from_numpy(key.child("held out").permutations(1, source.count)[0])
    kept, aside = (Records(source.x[rows], source.y[rows]) for rows in (order[records:], order[:records]))
    kept = kept if dataset.aside is None else dataset.pool
    public = PublicData(f"{dataset.name}/{part}", Records(dataset.scaling(aside.x), aside.y))
    counts = {**dataset.counts, "train": kept.count, part: records}
    return replace(dataset, pool=kept, validation=public, counts=counts)


def share_records(one: str, other: str) -> bool:
    """Whether two data sets by name hold some of the same records: domains are their own, all digits of NIST are one.

    >>> share_records("mnist", "usps"), share_records("mnist", "emnist-digits"), share_records("mnist", "emnist-letters")
    (False, True, False)
    """
    if one == other or one not in SOURCES or other not in SOURCES:
        return one == other
    if (
        "emnist-letters" in (one, other) and {one, other} & _DIGITS
    ):  # written by the same people, but no letter is a digit
        return False
    folders = {SOURCES[name].folder for name in (one, other)}
    if one in DOMAIN_NAMES and other in DOMAIN_NAMES:
        return len(folders) == 1 and bool({*domains.chosen(one)} & {*domains.chosen(other)})
    return len(folders) == 1 or folders == {"mnist", "emnist"}


def as_public(dataset: Dataset, key: Key, share: float = 0.7) -> tuple[PublicData, PublicData]:
    """All records of a data set as public ones: a share of them at random for whoever needs such, and the rest to test on.

    >>> [part.records.count for part in as_public(load("digits"), Key.from_seed(0))]
    [1257, 540]
    """
    records = Records(*(torch.cat(parts) for parts in zip(dataset.train, dataset.test.records, strict=True)))
    return in_two(PublicData(dataset.name, records), key, share)


def in_two(public: PublicData, key: Key, share: float = 0.7) -> tuple[PublicData, PublicData]:
    """A share of public records at random for whoever needs such, and the rest to test on."""
    x, y = public.records
    order = torch.from_numpy(key.child("public").permutations(1, len(y))[0])
    asked, rest = order.tensor_split([int(share * len(y))])
    return (
        PublicData(f"{public.name}/public", Records(x[asked], y[asked])),
        PublicData(f"{public.name}/test", Records(x[rest], y[rest])),
    )


def data_folder(folder: str | Path | None = None) -> Path:
    """Where data sets are: the folder given, else `SFUMATO_DATA`, else the user's cache."""
    if folder is not None:
        return Path(folder).expanduser()
    if given := os.environ.get("SFUMATO_DATA"):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "sfumato"


def _wanted(name: str, root: Path, why: str) -> str:
    source = SOURCES[name]
    return (
        f"{name} is not in {root}, and {why}. Put {', '.join(source.wanted)} into {root / source.folder}, "
        "or name another folder with --data-dir or SFUMATO_DATA."
    )
