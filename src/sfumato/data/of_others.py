"""How the clients of a population that is made of another one are loaded: more of them, one of all, or mapped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from sfumato.data.record_map import Map, unchanged
from sfumato.data.records import Client, Records
from sfumato.errors import DataError

if TYPE_CHECKING:
    from sfumato.data.population import Population

_KEPT = 4 * 2**30  # about as many bytes of mapped records are kept; who comes after is mapped whenever drawn


@dataclass(frozen=True)
class Declared:
    """Whoever is declared and not there has no records."""

    there: Population

    def __call__(self, number: int) -> Client:
        if number < self.there.size:
            return self.there.client(number)
        shape = self.there.client(0).train
        return Client(Records(shape.x[:0], shape.y[:0], inputs=shape.inputs))


@dataclass(frozen=True)
class Joined:
    """One client, who holds the records of all."""

    there: Population

    def __call__(self, number: int) -> Client:
        clients = [self.there.client(each) for each in range(self.there.size)]
        tests = [client.test for client in clients if client.test is not None]
        return Client(_end_to_end([client.train for client in clients]), _end_to_end(tests) if tests else None)


def _end_to_end(parts: list[Records]) -> Records:
    if len(kinds := dict.fromkeys(part.inputs for part in parts)) > 1:
        raise DataError(f"clients' inputs differ: {'; '.join(map(str, kinds))}. Mend their data.")
    return Records(*map(torch.cat, zip(*parts, strict=True)), inputs=parts[0].inputs)


def mapped(function: Map, records: Records) -> Records:
    """The inputs of records, mapped."""
    if records.inputs is not None and function is not unchanged:
        raise DataError(f"features are made of one tensor, and a record has several: {records.inputs}. Leave them out.")
    return Records(function(records.x), records.y, inputs=records.inputs)


@dataclass(frozen=True)
class Mapped:
    """Each record mapped by itself; what a client becomes is kept, if its data cannot change and it is not too much.

    `function` is what `as_record_map` gives.
    """

    there: Population
    function: Map
    _kept: dict[int, Client] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, number: int) -> Client:
        if (kept := self._kept.get(number)) is not None:
            return kept
        parts = (None if part is None else mapped(self.function, part) for part in self.there.client(number))
        client = Client(*parts)  # type: ignore[arg-type]  # the first is never None
        size = client.train.x.nbytes
        if self.there.is_fixed and size * (len(self._kept) + 1) <= _KEPT:
            self._kept[number] = client
        return client

    def __getstate__(self) -> dict[str, Any]:
        return {"there": self.there, "function": self.function, "_kept": {}}
