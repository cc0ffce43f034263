"""The clients of a round on a cluster: `simulate(..., cohort=ray_workers("local", 2))`.

A cohort is cut into shards, and each worker gives back one block of a shard: its sum. A worker that dies is started again
and its shard is computed again, from the same keys: no one has seen what the first one made of them, and exactly one result of
each shard enters the sum (PRIVACY R5). Which data a worker has is said with every shard, and one that has others is refused before
anything of it is added.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import torch

from sfumato.engine.clients import Block, Clients, Start
from sfumato.engine.elsewhere import Answer, Facts, Letter, Worker, agreed, alike, given
from sfumato.engine.packing import Packed, packed, unpacked
from sfumato.engine.ray_cluster import LOCAL, Cluster, import_ray
from sfumato.engine.slots import Opening
from sfumato.engine.workers import cut, simulated
from sfumato.errors import BadValue, DataError

_TRIES = 10  # of a shard whose worker died: what kills it each time would go on for ever


def ray_workers(address: str = LOCAL, workers: int | None = None, shards: int | None = None) -> OnRay:
    """Workers on a Ray cluster: one on this machine that ends with the run (`local`), or one that answers at HOST:PORT.

    Without a number there are as many as CPUs. A plan that is yet to be chosen has as many shards as workers, unless `shards`
    says otherwise; more of them than workers leave room to go on with more. A process that is connected to a cluster already
    uses that one, and leaves it as it is.
    """
    for name, number in (("workers", workers), ("shards", shards)):
        if number is not None and number < 1:
            raise BadValue(f"{name}={number}: at least 1.")
    if workers is not None and shards is not None and shards < workers:
        raise BadValue(f"{workers} workers, and {shards} shards: some would have nothing to do. Give as many shards.")
    cluster = Cluster(address, workers)
    cluster.check()
    return OnRay(cluster, workers, shards)


class OnRay:
    """Makes the workers of a run."""

    def __init__(self, cluster: Cluster, workers: int | None, shards: int | None) -> None:
        self._cluster, self._workers, self._shards = cluster, workers, shards

    @property
    def shards(self) -> int:
        """How many a plan should have."""
        return self._shards or self._workers or self._cluster.count()

    def __call__(self, clients: Clients) -> RayWorkers:
        shards, workers = clients.plan.shards, self._workers
        if workers is not None and workers > shards:
            raise BadValue(
                f"{workers} workers, and the plan of this run cuts a cohort into {shards}: some would have nothing to do. Use at "
                f"most {shards} (--workers {shards}), or begin a run with more shards."
            )
        return RayWorkers(clients, self._cluster, workers or min(shards, self._cluster.count()))


class RayWorkers:
    """Actors of one thread each."""

    def __init__(self, clients: Clients, cluster: Cluster, workers: int) -> None:
        self._shards, self._cluster, self._actors = clients.plan.shards, cluster, list[Any]()
        self._simulated = simulated(clients)
        self.seconds: tuple[float, ...] = ()  # that the shards of the last round took, each where it was computed
        letter = Letter.to_workers(clients, import_ray().cloudpickle.dumps)
        self._ray, self._open = cluster.open(), True
        try:
            cluster.check_room(workers)
            self._letter = [self._ray.put(letter)]
            made = self._ray.remote(_Worker).options(num_cpus=1, max_restarts=-1, max_task_retries=_TRIES)
            self._actors = [made.remote() for _ in range(workers)]
            asked = [actor.facts.remote(self._letter) for actor in self._actors]
            self._expected = alike(clients.population, [given(self._got(one)) for one in asked])
        except BaseException:
            self.close()
            raise

    def assumptions(self) -> tuple[str, ...]:
        return self._simulated

    def released(self, params: torch.Tensor, opening: Opening) -> None:
        """Nothing waits for it."""

    def blocks(self, start: Start, ids: Sequence[int]) -> Iterator[Block]:
        """One for each shard."""
        everyones, actors = self._ray.put(packed(replace(start, memory={}))), cycle(self._actors)
        asked = deque(
            next(actors).shard.remote(self._letter, everyones, packed(start.only(own).memory), own)
            for own in cut(ids, self._shards)
        )
        self.seconds = ()
        while asked:  # what was given is held by nobody but the adder
            answer: Answer = given(unpacked(self._got(asked.popleft())))
            agreed(self._expected, answer.facts, answer.host)
            self.seconds += (answer.seconds,)
            yield answer.block

    def _got(self, asked: Any) -> Any:
        try:
            return self._ray.get(asked)
        except self._ray.exceptions.RayActorError as error:
            raise DataError(
                f"a worker died again and again, {_TRIES} times in one shard ({type(error).__name__}). See that its host has the "
                "memory for the data and the model; the run can be resumed."
            ) from None
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause or error from None

    def close(self) -> None:
        """End the workers; and the cluster, if it is ours."""
        if self._open:
            self._open = False
            for actor in self._actors:
                self._ray.kill(actor)
            self._cluster.close()


class _Worker:
    """The worker of any cluster as an actor.

    The letter comes with everything that is asked, as a reference in a list, which is looked into by a worker that has just been
    started, or started again.
    """

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def facts(self, letter: list[Any]) -> tuple[Facts, str] | DataError:
        return self._ready(letter).facts()

    def shard(self, letter: list[Any], start: Packed, memory: Packed, ids: list[int]) -> Packed:
        return packed(self._ready(letter).shard(replace(unpacked(start), memory=unpacked(memory)), ids))

    def _ready(self, letter: list[Any]) -> Worker:
        if self._worker is None:
            self._worker = Worker(import_ray().get(letter[0]))
        return self._worker
