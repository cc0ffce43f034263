"""Which data a run has: its clients, what is tested on, what is public, and the features that are made of all of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from sfumato.data.load import NAMES, as_public, build_population, hold_out, in_two, share_records
from sfumato.data.load import load as load_data
from sfumato.data.population import Client, Population, PublicData, Records, require_public
from sfumato.data.sets import Dataset
from sfumato.data.tables import is_table
from sfumato.errors import BadValue, DataError
from sfumato.features import Features, Fit, learns
from sfumato.imports import import_path, is_import_path
from sfumato.key import Key
from sfumato.objective import Objective, check_labels
from sfumato.run.naming import naming
from sfumato.run.request import DataRequest
from sfumato.run.table import table_of

_BASIS = 5000  # public records that a basis is learnt from


@dataclass(frozen=True)
class Source:
    """What was found for a data request. `dataset` is shared out to clients, unless `population` comes with its own.

    `public` is what is public besides the test data: for the recipe, if it has a use for such, and for features that learn. `fit`
    brings clients' pictures to the shape of another data set that is tested on; what is public or tested on needs no `fit`.
    """

    outputs: int
    test: PublicData | None
    dataset: Dataset | None = field(default=None, repr=False)
    population: Population | None = field(default=None, repr=False)
    counts: Mapping[str, int] = field(default_factory=dict)  # of a named data set; nothing of a user's own is counted
    public: PublicData | None = None
    fit: tuple[Fit, ...] = ()
    shared: bool = False  # the recipe has a use for what is public

    @property
    def shape(self) -> tuple[int, ...]:
        """That of a record, before any features."""
        return tuple(self._some.shape[1:])

    @property
    def _some(self) -> Tensor:
        if self.dataset is not None:
            some = self.dataset.scaling(self.dataset.pool.x[:1])
        else:
            assert self.population is not None, "one of the two is there"
            some = example(self.population, self.test).x[:1]
        return Features(self.fit)(some) if self.fit else some

    def of(self, data: DataRequest) -> Population:
        """The clients."""
        if self.dataset is None:
            assert self.population is not None, "one of the two is there"
            return self.population
        key = Key.from_seed(data.split_seed).child("split")
        share = data.records_per_client or None
        return build_population(self.dataset, data.clients, data.split, key, share, data.test_fraction)


def find_source(
    data: DataRequest,
    *,
    domain: bool,
    joined: bool = False,
    open_to_all: bool = False,
    unscaled: bool = False,
    elsewhere: Population | None = None,
) -> Source:
    """The data before features, pictures from 0 to 1 where features will be made of them, or `unscaled` says so.

    With `domain`, the recipe uses `data.public` and is tested on it.

    `joined` clients are one holder, so their number need not be declared. `open_to_all`: the clients' records are public
    themselves, as those of a proxy are, and may be the same as other public ones. The clients' own data may be `elsewhere`: then
    only their shapes are declared.
    """
    unscaled = unscaled or bool(data.public or data.features or data.test in NAMES)
    own = is_own_data(data.name) or (elsewhere is not None and data.name not in NAMES)
    found = _own(data, joined, elsewhere) if own else _named(data, unscaled)
    found = replace(found, shared=domain)
    if data.public is not None and is_table(data.public) and own:
        if not is_table(data.name):
            raise BadValue(
                f"--public {data.public}: categories and ranges are learnt for a table only. Give --data a table too."
            )
        found = _with_rows(data, found)
    elif data.public is not None:
        if data.public_records is not None:
            raise BadValue(
                f"--public {data.public} and --public-records {data.public_records} exclude each other: both say what is public. "
                "Leave one out."
            )
        if not open_to_all and share_records(data.public, data.name):
            raise BadValue(
                f"--public {data.public}: clients of {data.name} hold the same records, and what is public hides nobody. Give a "
                "data set that no client has, or --public-records."
            )
        found = _with_domain(data, found) if domain else _with_basis(data, found)
    if data.test in NAMES:
        found = _tested_on(data, found)
    if elsewhere is None:
        return found
    if found.fit:
        raise BadValue(
            "pictures of clients elsewhere cannot be brought to the shape of another data set. Give public or test data of "
            "the same shape as theirs, e.g. --public-records."
        )
    return replace(found, dataset=None, population=elsewhere)


def _with_domain(data: DataRequest, found: Source) -> Source:
    """Clients' pictures in the shape of the public data set, of which a part is asked about and the rest is tested on."""
    if data.test is not None:
        raise BadValue(
            f"--public {data.public} and --test-data {data.test} exclude each other: queries and tests are of one kind. Leave "
            "one out."
        )
    dataset = _of_the_same_classes(data, found, "--public", data.public)
    public, test = as_public(dataset, Key.from_seed(data.split_seed))
    counts = {**found.counts, "public": public.records.count, "test": test.records.count}
    public = replace(public, pictures=public.records.x)
    return replace(found, fit=_fit(dataset, found), public=public, test=test, counts=counts)


def _with_rows(data: DataRequest, found: Source) -> Source:
    """The rows of a public table, from which columns have learnt: asked about by a recipe that does so, and tested on if there is
    no table for that; for features that learn; or for nothing more.
    """
    if found.public is None:  # the owners' tables are elsewhere, and columns declared
        return found
    if found.shared and found.test is None:
        public, test = in_two(found.public, Key.from_seed(data.split_seed))
        return replace(found, public=public, test=test)
    learnt = data.features is not None and learns(data.features)
    return found if found.shared or learnt else replace(found, public=None)


def _with_basis(data: DataRequest, found: Source) -> Source:
    """Some public records, of whatever classes, for features that learn from them; tests stay as they are."""
    assert data.public is not None
    dataset = load_data(data.public, data.folder or None).unscaled
    if not dataset.scaling(dataset.pool.x[:1]).is_floating_point():
        raise BadValue(f"--public {data.public}: no basis is learnt from text. Give pictures or other numbers.")
    order = Key.from_seed(0).child("basis").permutations(1, dataset.pool.count)[0]
    rows = order[:_BASIS]
    public = PublicData(f"{data.public}/train", Records(dataset.scaling(dataset.pool.x[rows]), dataset.pool.y[rows]))
    return replace(found, public=public, counts={**found.counts, "public": public.records.count})


def _tested_on(data: DataRequest, found: Source) -> Source:
    """Clients' pictures in the shape of another data set, whose test split is tested on."""
    dataset = _of_the_same_classes(data, found, "--test-data", data.test)
    counts, fit = {**found.counts, "test": dataset.test.records.count}, _fit(dataset, found)
    public = found.public
    if public is not None and data.public_records is not None:  # they were set aside from the clients' pool
        public = replace(public, records=Records(Features(fit)(public.records.x), public.records.y))
    return replace(found, fit=fit, test=dataset.test, public=public, counts=counts)


def _fit(dataset: Dataset, found: Source) -> tuple[Fit, ...]:
    own_margin = 0 if found.dataset is None else found.dataset.margin
    return (Fit(tuple(dataset.test.records.x.shape[1:]), dataset.margin, own_margin),)


def _of_the_same_classes(data: DataRequest, found: Source, option: str, name: str | None) -> Dataset:
    assert name is not None
    dataset = load_data(name, data.folder or None).unscaled
    if dataset.task != data.task or dataset.classes != found.outputs:
        raise BadValue(
            f"{option} {name} has {dataset.classes} outputs for {dataset.task}; {data.name} has {found.outputs} for "
            f"{data.task}. Give records of the same classes."
        )
    return dataset


def is_own_data(name: str) -> bool:
    """Whether a data set's name is a user's folder, table or function."""
    return name not in NAMES and (is_import_path(name) or "/" in name or is_table(name) or Path(name).is_dir())


def _named(data: DataRequest, unscaled: bool) -> Source:
    dataset = load_data(data.name, data.folder or None)
    dataset = dataset.unscaled if unscaled else dataset
    if (kinds := {"regression": "numbers", "multi-label": "labels that hold or not"}.get(dataset.task)) and (
        data.task != dataset.task
    ):
        raise BadValue(f"task={data.task!r}: the targets of {data.name} are {kinds}. Give --task {dataset.task}.")
    if data.task in ("classification", "next-character") and 0 < data.outputs < dataset.classes:
        raise BadValue(f"outputs={data.outputs}: {data.name} has {dataset.classes} classes. Leave --outputs out.")
    if data.public_records is not None:
        dataset = hold_out(dataset, data.public_records, Key.from_seed(data.split_seed), "public")
    public = None if data.public_records is None else dataset.validation
    return Source(
        outputs=data.outputs or dataset.classes,
        test=dataset.test,
        dataset=dataset,
        population=None,
        counts=dataset.counts,
        public=public,
    )


def _own(data: DataRequest, joined: bool, elsewhere: Population | None) -> Source:
    if elsewhere is None and is_table(data.name):
        table = table_of(data, joined)
        return Source(
            outputs=table.outputs, test=table.test, dataset=None, population=table.population, public=table.public
        )
    if elsewhere is not None:
        population, test = elsewhere, None
    elif is_import_path(data.name):
        with naming(f"the data {data.name!r}", private=True):
            population, test = _imported(data)
    else:
        population, test = Population.from_folder(data.name), None
    if data.test is not None and data.test not in NAMES:
        with naming(f"the test data {data.test!r}"):
            found = import_path(data.test)
            test = require_public(
                found() if callable(found) and not isinstance(found, PublicData) else found, data.test
            )
    if not data.outputs:
        raise BadValue(
            f"data {data.name!r} does not say how many outputs a model needs. Give --outputs, e.g. the classes."
        )
    population = population if joined else population.declared(data.clients)
    return Source(outputs=data.outputs, test=test, dataset=None, population=population)


def _imported(data: DataRequest) -> tuple[Population, PublicData | None]:
    """What `module:name` names or returns: clients, or a pair of clients and public test data."""
    found, test = import_path(data.name), None
    if callable(found) and not isinstance(found, Population) and not inspect.signature(found).parameters:
        found = found()
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], PublicData):
        found, test = found
    if isinstance(found, Population):
        return found, test
    if isinstance(found, Client) or (isinstance(found, tuple) and all(map(_is_array, found))):
        found = [found]  # one client
    if isinstance(found, list | tuple):
        return Population.from_list(found, name=data.name), test
    return Population.from_import(data.name, data.clients), test


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def example(population: Population, test: PublicData | None) -> Records:
    """Some records, for their shapes; where these are declared, nobody's."""
    if population.example is not None:
        return population.example
    if test is not None:
        return test.records
    for client in range(min(population.size, 1000)):
        records = population.client(client).train
        if records.count:
            return records
    raise DataError(f"none of the first clients of {population.name!r} has a record. Give clients with data.")


def check_labels_of(population: Population, test: PublicData | None, objective: Objective) -> None:
    """Refuse labels that do not fit the outputs, before anything is spent: those of the test data, and of all clients that are at
    hand; of others only who is looked at for the shapes. Theirs are refused when they are drawn.
    """
    if test is not None:
        check_labels(objective, test.records.y, f"the test data {test.name!r}")
    for number in range(population.at_hand):
        check_labels(objective, population.client(number).train.y, f"client {number} of {population.name!r}")
    if not population.at_hand:
        check_labels(objective, example(population, test).y, f"a client of {population.name!r}")
