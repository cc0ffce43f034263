"""The clients' half of a round. Sums of blocks are added in a fixed order; what clients keep stays on this side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from functools import partial

import torch

from sfumato.data.population import Population
from sfumato.engine.clients import START, Block, Clients, Job, Memory, Start, Total
from sfumato.engine.executor import in_order, threads
from sfumato.engine.plan import Plan
from sfumato.engine.slots import Kept, Opening
from sfumato.key import Key
from sfumato.pieces.protocol import PersonalPiece, State

_PART = 2**16  # coordinates that are added at once, so that their sum stays in the cache
_WAITING = 2**25  # bytes of messages that wait to be added together


def _add(total: torch.Tensor, messages: list[torch.Tensor]) -> None:
    """Add messages in their order, part by part, and forget them: the sum does not depend on how many come at once."""
    each = (torch.split(message, _PART) for message in messages)
    for sum_of, *some in zip(torch.split(total, _PART), *each, strict=True):
        for part in some:
            sum_of += part
    messages.clear()


class Cohort:
    """Runs the clients' half of rounds, on an executor that is handed in, or on threads of its own as the plan says.

    Between `total` and `keep` it holds what the cohort's clients trained, which the server's half never sees.
    """

    def __init__(
        self, job: Job, population: Population, plan: Plan, diagnostics: bool = False, executor: Executor | None = None
    ) -> None:
        self.clients = Clients(job, population, plan, diagnostics)
        self._threads = torch.get_num_threads()
        self._pool = threads(plan.workers) if plan.workers > 1 and executor is None else None
        self._executor = executor or self._pool
        self._trained: Memory = {}

    def close(self) -> None:
        """Stop its own workers and give the threads back."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            torch.set_num_threads(self._threads)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """One thread for what waits for the workers, so that it takes no core from them."""
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(self._threads)

    def open(
        self, params: torch.Tensor, number: int, key: Key, kept: Kept | None = None, state: State | None = None
    ) -> Opening:
        """Begin a round: let the pieces prepare what all clients share. `key` is that of the round's opening."""
        train = partial(self.clients.train_on, params, Opening(number, key))
        return self.clients.job.slots.open(number, key, kept, train, state)

    def total(
        self,
        params: torch.Tensor,
        ids: Sequence[int],
        opening: Opening,
        clients: Key,
        memory: Memory | None = None,
        channel: Key | None = None,
        lasting: Key | None = None,
    ) -> Total:
        """Train the cohort from `params`, or from what each client remembers, and pass its messages on: added, or one by one.

        `clients` is the root of the clients' own keys, `lasting` of those that stay the same for the run, and `channel` that of
        what permutes messages.
        """
        weight = 0.0
        norms: list[float] = []
        slots = self.clients.job.slots
        self._trained = {}
        start = Start(params, opening, clients, memory or {}, lasting or clients)
        waiting: list[torch.Tensor] = []
        with nullcontext() if self._executor is None else self._waiting():
            blocks = self._blocks(start, ids)
            if slots.gathers:
                return self._gathered(list(blocks), list(ids), opening, channel)
            rows = torch.zeros(slots.width(opening), dtype=torch.float64, device=params.device)
            for block in blocks:
                self._trained.update(block.stays)
                waiting.append(block.total.rows)
                if sum(some.nbytes for some in waiting) >= _WAITING:
                    _add(rows, waiting)
                weight += block.total.weight
                norms.extend(block.total.norms)
        _add(rows, waiting)  # with all threads, as no worker is busy any more
        return Total(rows, weight, norms=tuple(norms))

    def _gathered(self, blocks: list[Block], ids: list[int], opening: Opening, channel: Key | None) -> Total:
        """The messages in the order in which the server sees them; added up there, if the aggregate adds."""
        slots, norms = self.clients.job.slots, tuple(norm for block in blocks for norm in block.total.norms)
        for block in blocks:
            self._trained.update(block.stays)
        nobody = torch.zeros(0, slots.width(opening)), torch.zeros(0, dtype=torch.int64)
        messages = torch.cat([block.total.rows for block in blocks] or [nobody[0]])
        sizes = torch.cat([block.sizes for block in blocks] or [nobody[1]])
        assert channel is not None or not slots.permutes, "a channel that permutes has a key of its own"
        order = None
        if channel is not None:
            order = slots.round.channel.order(len(ids), channel.child("order", round=opening.number))
        if order is not None:
            messages, sizes = messages[order], sizes[order]
        if slots.sums:
            return Total(*slots.weighted_sum(messages, sizes), norms=norms)
        return Total(messages, float(len(ids)), None if order is not None else tuple(ids), norms)

    def keep(self, memory: Memory, params: torch.Tensor) -> Memory:
        """What all clients remember once the cohort has seen the new parameters."""
        personal = self.clients.job.slots.round.personal
        if personal is None:
            return memory
        own, self._trained = self._trained, {}
        if isinstance(personal, PersonalPiece):
            own = {client: {START: personal.keep(rows[START], params, client)} for client, rows in own.items()}
        return {**memory, **own}

    def _blocks(self, start: Start, ids: Sequence[int]) -> Iterator[Block]:
        """The blocks in their order, so that the whole does not depend on timing."""
        plan = self.clients.plan
        size = plan.share(len(ids))
        blocks = (list(ids[first : first + size]) for first in range(0, len(ids), size))
        jobs = ((start.only(block), block) for block in blocks)
        if self._executor is None:
            return map(self.clients, jobs)
        return in_order(self._executor, self.clients, jobs, at_once=2 * plan.workers)
