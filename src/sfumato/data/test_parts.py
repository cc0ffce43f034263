"""A test part for each client, out of the public test split: records with the labels that the client has seen in training."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from sfumato.data.population import Client, Population, PublicData, Records
from sfumato.errors import BadValue, DataError
from sfumato.key import Key


def with_test_parts(population: Population, public: PublicData, size: int, key: Key) -> Population:
    """The same clients, each with `size` public test records whose labels follow those of its own training records.

    Labels are drawn from the client's own, records of a label without replacement; where the public records of a label
    run out, a client gets fewer. Which labels a client has is private, so what is measured on its part is a diagnostic.
    """
    if size < 1:
        raise BadValue(f"size={size}: a test part has at least one record, e.g. 200.")
    if public.records.y.ndim != 1 or public.records.y.is_floating_point():
        raise DataError(f"test parts by label need one class per record; {public.name!r} has other targets.")
    return replace(population, load=partial(_with_its_test_part, population, public.records, size, key))


def _with_its_test_part(population: Population, public: Records, size: int, key: Key, number: int) -> Client:
    train, key = population.client(number).train, key.child("client", number=number)
    seen = train.y.numpy()
    rows = [np.empty(0, np.int64)]
    if len(seen):
        wanted = seen[(key.child("labels").integers(size) % np.uint64(len(seen))).astype(np.int64)]
        for label, count in zip(*np.unique(wanted, return_counts=True), strict=True):
            there = np.flatnonzero(public.y.numpy() == label)
            rows.append(there[key.child("records", label=int(label)).permutations(1, len(there))[0][:count]])
    chosen = torch.from_numpy(np.concatenate(rows))
    return Client(train, Records(public.x[chosen], public.y[chosen], inputs=public.inputs))
