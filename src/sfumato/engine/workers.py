"""Who computes the clients' half of a round: this process, a cluster, or the clients' owners themselves.

Shards of ids go in, blocks come out in their order, and the cohort adds them. So a sum depends on who takes part, on the plan
and on the number of shards, and never on who computed a shard, when, or how often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch

from sfumato.engine.clients import Block, Clients, Memory, Start, Total
from sfumato.engine.executor import in_order, threads
from sfumato.engine.plan import Plan
from sfumato.engine.slots import Opening, Slots

_PART = 2**16  # coordinates that are added at once, so that their sum stays in the cache
_WAITING = 2**25  # bytes of messages that wait to be added together


@runtime_checkable
class Workers(Protocol):
    """What computes blocks of clients. `simulate(..., cohort=factory)` makes one of the clients of a run."""

    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee must say of who computes, and sees what."""

    def blocks(self, start: Start, ids: Sequence[int]) -> Iterator[Block]:
        """What these clients give, in their order. Nobody else's key or memory than theirs may reach who computes it.

        Whoever did not reply in time gives no block. Raises `GivenUp` if that are more than the round allows for.
        """

    def released(self, params: torch.Tensor, opening: Opening) -> None:
        """Hear the parameters that a round gave, once they are stored."""

    def close(self) -> None:
        """Let go of what computes."""


class GivenUp(Exception):
    """Too few clients replied for what a round states, so nothing of it may be used. It was paid for, and counts."""


Factory: TypeAlias = Callable[[Clients], Workers]


def asked_shards(factory: Factory) -> int:
    """How many shards a factory wants of a plan that is yet to be chosen: as many as its attribute `shards` says, else one."""
    return getattr(factory, "shards", 1)


def simulated(clients: Clients) -> tuple[str, ...]:
    """What a guarantee says where one owner's processes play the channel between clients and server."""
    words = clients.job.slots.round.channel.simulated
    return (words,) if words else ()


class Here:
    """This process: threads of its own as the plan says, or any executor of `concurrent.futures`."""

    def __init__(self, clients: Clients, executor: Executor | None = None) -> None:
        self.clients, self._plan = clients, clients.plan
        self._threads = torch.get_num_threads()
        self._pool = threads(self._plan.workers) if self._plan.workers > 1 and executor is None else None
        self._executor = executor or self._pool

    def assumptions(self) -> tuple[str, ...]:
        return simulated(self.clients)

    def close(self) -> None:
        """Stop its own workers and give the threads back."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            torch.set_num_threads(self._threads)
            self._pool = None

    def released(self, params: torch.Tensor, opening: Opening) -> None:
        """Nothing waits for it."""

    def blocks(self, start: Start, ids: Sequence[int]) -> Iterator[Block]:
        """The blocks in their order; one for each shard, where there are several."""
        if self._plan.shards == 1:
            yield from self._of(start, ids)
            return
        slots = self.clients.job.slots
        for shard in cut(ids, self._plan.shards):
            with self._waiting():  # a shard is computed by one thread, here as on a cluster
                block = added(slots, start, self._of(start, shard))
            yield block

    def _of(self, start: Start, ids: Sequence[int]) -> Iterator[Block]:
        size = self._plan.share(len(ids))
        jobs = ((start.only(block), block) for block in (list(ids[at : at + size]) for at in range(0, len(ids), size)))
        if self._executor is None:
            yield from map(self.clients, jobs)
            return
        with self._waiting():
            yield from in_order(self._executor, self.clients, jobs, at_once=2 * self._plan.workers)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """One thread, for a shard, or for what waits for the workers, so that it takes no core from them."""
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(self._threads)


def on(executor: Executor) -> Factory:
    """Blocks of clients on an executor of `concurrent.futures`, for `simulate(..., cohort=on(executor))`."""
    return partial(Here, executor=executor)


def cut(ids: Sequence[int], shards: int) -> list[list[int]]:
    """Ids in so many parts, as even as can be, in their order; there are no empty ones.

    >>> cut([5, 6, 7], 2), cut([5], 2)
    ([[5, 6], [7]], [[5]])
    """
    return [part.tolist() for part in np.array_split(np.asarray(ids, dtype=np.int64), shards) if len(part)]


def added(slots: Slots, start: Start, blocks: Iterator[Block]) -> Block:
    """One block of several, added in their order; where somebody must see them, the messages one after another.

    Without any it is a sum of nothing, where the parameters are.
    """
    device = start.params.device
    width, sizes = slots.width(start.opening, device), torch.zeros(0, dtype=torch.int64, device=device)
    if slots.gathers:
        nobody = Block(Total(torch.zeros(0, width, device=device), 0.0), {}, sizes)
        return _gathered([nobody, *blocks])
    rows = torch.zeros(width, dtype=torch.float64, device=device)
    weight = 0.0
    norms: list[float] = []
    stays: Memory = {}
    waiting: list[torch.Tensor] = []
    for block in blocks:
        stays.update(block.stays)
        waiting.append(block.total.rows)
        if sum(some.nbytes for some in waiting) >= _WAITING:
            _add(rows, waiting)
        weight += block.total.weight
        norms.extend(block.total.norms)
    _add(rows, waiting)  # with all threads, as no worker is busy any more
    return Block(Total(rows, weight, norms=tuple(norms)), stays, sizes)


def _gathered(blocks: list[Block]) -> Block:
    norms = tuple(norm for block in blocks for norm in block.total.norms)
    stays = {client: rows for block in blocks for client, rows in block.stays.items()}
    messages = torch.cat([block.total.rows for block in blocks])
    sizes = torch.cat([block.sizes for block in blocks])
    senders = tuple(client for block in blocks for client in block.total.senders or ())
    return Block(Total(rows=messages, weight=0.0, senders=senders, norms=norms), stays, sizes)


def _add(total: torch.Tensor, messages: list[torch.Tensor]) -> None:
    """Add messages in their order, part by part, and forget them: the sum does not depend on how many come at once."""
    each = (torch.split(message, _PART) for message in messages)
    for sum_of, *some in zip(torch.split(total, _PART), *each, strict=True):
        for part in some:
            sum_of += part
    messages.clear()


def alone(plan: Plan) -> Plan:
    """The plan of one worker that computes one shard of it."""
    return Plan(plan.path, plan.block)
