"""What local training gets: everything it may look at, for one client or for a block of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from sfumato.data.faults import Faults
from sfumato.data.population import Records
from sfumato.gradients import LossPerRecord, OneByOne, Stacked
from sfumato.key import Key
from sfumato.shapes import Row, Rows
from sfumato.update import Layout


@dataclass(frozen=True)
class Task:
    """One round's local work for some clients.

    `params` are the global parameters, `starts` where each client begins: at `params`, or at its own helper model. Training
    gives back rows: where each client ended, minus `params`. `ids` are the clients' numbers, where anybody knows them, and
    `corrections` what each adds to every gradient, after its noise: only training that says so (`controlled`) is given any.
    `lasting` are keys of the clients' own that stay the same in every round of a run; a resumed run has others; `shared` is what
    `prepare` made of public facts. `faults` are the records of a single client that count as zero; None: none does, and what a
    record raises ends the run.
    """

    forward: Stacked | OneByOne
    layout: Layout
    loss: LossPerRecord
    params: Row
    starts: Rows
    clients: Sequence[Records]
    keys: Sequence[Key]
    round: int
    ids: Sequence[int] = ()
    corrections: Rows | None = None
    lasting: Sequence[Key] = ()
    shared: Tensor | None = None
    faults: Faults | None = None

    @property
    def together(self) -> bool:
        """Whether all clients begin at the global parameters: they then share their memory."""
        shared = len(self.starts) == 1 or self.starts.stride(0) == 0
        return shared and self.starts.data_ptr() == self.params.data_ptr()

    def only(self, place: int) -> Task:
        """The same work for one of the clients."""
        one = slice(place, place + 1)
        corrections = None if self.corrections is None else self.corrections[one]
        own = replace(self, starts=self.starts[one], clients=self.clients[one], keys=self.keys[one], ids=self.ids[one])
        return replace(own, corrections=corrections, lasting=self.lasting[one])

    def some(self, places: Sequence[int]) -> Task:
        clients, keys = [self.clients[place] for place in places], [self.keys[place] for place in places]
        ids = [self.ids[place] for place in places] if self.ids else ()
        lasting = [self.lasting[place] for place in places] if self.lasting else ()
        starts = self.params.expand(len(places), -1) if self.together else self.starts[list(places)]
        corrections = None if self.corrections is None else self.corrections[list(places)]
        own = replace(self, starts=starts, clients=clients, keys=keys, ids=ids)
        return replace(own, corrections=corrections, lasting=lasting)
