"""The clients of a round on processes that `torchrun` has started: a cluster with nothing but torch.

    torchrun --nproc-per-node 3 mine.py

The process of rank 0 serves; the others train shards. If one dies, all end: with a folder, `torchrun --max-restarts` goes on from
the last round, with fresh noise.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from sfumato.engine.clients import Block, Clients, Start
from sfumato.engine.elsewhere import Answer, Letter, Worker, agreed, alike, given
from sfumato.engine.packing import packed, unpacked
from sfumato.engine.slots import Opening
from sfumato.engine.workers import cut, simulated
from sfumato.errors import BadValue

_PATIENCE = timedelta(days=7)  # a worker waits for as long as the server evaluates; who dies is noticed at once


def gloo_workers() -> OnGloo:
    """What `simulate(..., cohort=gloo_workers())` needs, in the process that serves; the others train until that is over, and
    end here.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world < 2 or "RANK" not in os.environ:
        raise BadValue(
            "there are no workers: start at least two processes, e.g. torchrun --nproc-per-node 3 (one that serves, two workers)."
        )
    store, rank, world = next(iter(rendezvous("env://", timeout=_PATIENCE)))
    again = os.environ.get(
        "TORCHELASTIC_RESTART_COUNT", "0"
    )  # addresses of processes that have died are in the store as well
    store = PrefixStore(f"sfumato {again}", store)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=_PATIENCE)
    if rank:
        _serve()
        distributed.destroy_process_group()
        sys.exit(0)
    return OnGloo(world - 1)


class OnGloo:
    """Makes the workers of a run, of which there is one: its end is theirs."""

    def __init__(self, workers: int) -> None:
        self.shards = workers

    def __call__(self, clients: Clients) -> GlooWorkers:
        return GlooWorkers(clients, self.shards)


class GlooWorkers:
    """Ranks 1 and up."""

    def __init__(self, clients: Clients, workers: int) -> None:
        self._shards, self._workers, self._waiting = clients.plan.shards, workers, True
        self._simulated = simulated(clients)
        _tell(Letter.to_workers(clients))
        found = [given(_hear(rank)) for rank in range(1, workers + 1)]
        self._expected = alike(clients.population, found)

    def assumptions(self) -> tuple[str, ...]:
        return self._simulated

    def released(self, params: torch.Tensor, opening: Opening) -> None:
        """Nothing waits for it."""

    def blocks(self, start: Start, ids: Sequence[int]) -> Iterator[Block]:
        """One for each shard."""
        self._waiting = False  # they do not listen again before all is heard
        shards = cut(ids, self._shards)
        _tell((packed(replace(start, memory={})), shards))
        for place, own in enumerate(shards):
            distributed.send_object_list([packed(start.only(own).memory)], dst=1 + place % self._workers)
        for place in range(len(shards)):
            answer: Answer = given(unpacked(_hear(1 + place % self._workers)))
            agreed(self._expected, answer.facts, answer.host)
            yield answer.block
        self._waiting = True

    def close(self) -> None:
        """End the workers; where a round broke off, they end with this process."""
        if self._waiting:
            self._waiting = False
            _tell(None)
            distributed.destroy_process_group()


def _serve() -> None:
    """Train shards until there are no more."""
    rank, workers = distributed.get_rank(), distributed.get_world_size() - 1
    if (letter := _told()) is None:
        return
    worker = Worker(letter)
    distributed.send_object_list([worker.facts()], dst=0)
    while (asked := _told()) is not None:
        start, shards = asked
        own = shards[rank - 1 :: workers]
        memories = [_hear(0) for _ in own]
        for ids, memory in zip(own, memories, strict=True):
            found = worker.shard(replace(unpacked(start), memory=unpacked(memory)), ids)
            distributed.send_object_list([packed(found)], dst=0)


def _tell(what: object) -> None:
    distributed.broadcast_object_list([what], src=0)


def _told() -> Any:
    found: list[Any] = [None]
    distributed.broadcast_object_list(found, src=0)
    return found[0]


def _hear(rank: int) -> Any:
    found: list[Any] = [None]
    distributed.recv_object_list(found, src=rank)
    return found[0]
