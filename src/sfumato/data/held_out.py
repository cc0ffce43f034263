"""A part of the pool set aside before there are clients: for validation, or for whatever else needs public records."""

from __future__ import annotations

from dataclasses import replace

import torch

from sfumato.data.population import PublicData, Records
from sfumato.data.sets import Dataset
from sfumato.errors import BadValue
from sfumato.key import Key


def hold_out(dataset: Dataset, records: int, key: Key) -> Dataset:
    """The data set with so many records of its pool, at random, as public validation data: no client will hold them.

    >>> from sfumato.data.load import load
    >>> parted = hold_out(load("digits"), 400, Key.from_seed(0))
    >>> parted.pool.count, parted.validation.records.count
    (1000, 400)
    """
    if dataset.own is not None or dataset.validation is not None:
        raise BadValue(f"{dataset.name} has a validation part already, or clients of its own. Use it as it is.")
    if not 0 < records < dataset.pool.count:
        raise BadValue(f"hold_out(records={records}): the pool of {dataset.name} has {dataset.pool.count}.")
    order = torch.from_numpy(key.child("held out").permutations(1, dataset.pool.count)[0])
    kept, aside = (Records(dataset.pool.x[rows], dataset.pool.y[rows]) for rows in (order[records:], order[:records]))
    public = PublicData(f"{dataset.name}/validation", Records(dataset.scaling(aside.x), aside.y))
    counts = {**dataset.counts, "train": kept.count, "validation": records}
    return replace(dataset, pool=kept, validation=public, counts=counts)
