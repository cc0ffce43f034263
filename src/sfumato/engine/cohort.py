"""The clients' half of a round, whoever computes it. Blocks are added in their order; what clients keep stays on this side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from sfumato.engine.clients import START, Block, Clients, Memory, Start, Total
from sfumato.engine.slots import Kept, Opening
from sfumato.engine.workers import Factory, Here, added
from sfumato.key import Key
from sfumato.pieces.protocol import PersonalPiece, State


class Cohort:
    """Runs the clients' half of rounds, on workers that a factory makes; in this process, if none is given.

    Between `total` and `keep` it holds what the cohort's clients trained, which the server's half never sees.
    """

    def __init__(self, clients: Clients, factory: Factory = Here) -> None:
        self.clients, self.workers = clients, factory(clients)
        self._trained: Memory = {}

    def close(self) -> None:
        self.workers.close()

    def open(
        self, params: torch.Tensor, number: int, key: Key, kept: Kept | None = None, state: State | None = None
    ) -> Opening:
        """Begin a round: let the pieces prepare what all clients share. `key` is that of the round's opening."""
        train = partial(self.clients.train_on, params, Opening(number, key))
        return self.clients.job.slots.open(number, key, kept, train, state).to(params.device)

    def total(
        self,
        params: torch.Tensor,
        ids: Sequence[int],
        opening: Opening,
        clients: Key,
        memory: Memory | None = None,
        channel: Key | None = None,
        lasting: Key | None = None,
        attempt: int = 0,
        reserved: int = 0,
        since: int = 0,
    ) -> Total:
        """Train the cohort from `params`, or from what each client remembers, and pass its messages on: added, or one by one.

        `clients` is the root of the clients' own keys, `lasting` of those that stay the same for the run, and `channel` that of
        what permutes messages. `attempt`, `reserved` and `since` are those of `Start`.
        """
        slots = self.clients.job.slots
        start = Start(
            params=params,
            opening=opening,
            clients=clients,
            memory=memory or {},
            lasting=lasting or clients,
            attempt=attempt,
            reserved=reserved,
            since=since,
        )
        found = added(slots, start, self.workers.blocks(start, ids))
        self._trained = found.stays
        return self._seen(found, opening, channel) if slots.gathers else found.total

    def _seen(self, found: Block, opening: Opening, channel: Key | None) -> Total:
        """The messages in the order in which the server sees them; added up there, if the aggregate adds."""
        slots, messages, sizes = self.clients.job.slots, found.total.rows, found.sizes
        assert channel is not None or not slots.permutes, "a channel that permutes has a key of its own"
        order = None
        if channel is not None:
            order = slots.round.channel.order(len(messages), channel.child("order", round=opening.number))
        if order is not None:
            messages, sizes = messages[order], sizes[order]
        norms = found.total.norms
        if slots.sums:
            rows, weight = slots.weighted_sum(messages, sizes)
            return Total(rows=rows, weight=weight, norms=norms)
        senders = None if order is not None else found.total.senders
        return Total(rows=messages, weight=float(len(messages)), senders=senders, norms=norms)

    def keep(self, memory: Memory, params: torch.Tensor) -> Memory:
        """What all clients remember once the cohort has seen the new parameters."""
        personal = self.clients.job.slots.round.personal
        if personal is None:
            return memory
        own, self._trained = self._trained, {}
        if isinstance(personal, PersonalPiece):
            own = {client: {START: personal.keep(rows[START], params, client)} for client, rows in own.items()}
        return {**memory, **own}
