"""A worker in another process, whatever starts it: what it is told, what it says of itself, what it gives back.

It builds its population from where the data lie, so that no record travels. It gets the keys of clients and none of the
server's. What comes back of a shard is one block: a sum, or where somebody must see them the messages.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch

from sfumato.data.origin import origin_of
from sfumato.data.population import Origin, Population
from sfumato.digest import digest
from sfumato.engine.clients import Block, Clients, Job, Start
from sfumato.engine.plan import Plan
from sfumato.engine.workers import Here, added, alone
from sfumato.errors import BadValue, DataError, SfumatoError
from sfumato.private_log import words_of
from sfumato.version import __version__

_DATA = "SFUMATO_DATA"
_Given = TypeVar("_Given")


@dataclass(frozen=True)
class Facts:
    """What every worker must have in common: the version, and the data, of which `data` is a sample."""

    version: str
    data: str
    clients: int

    @staticmethod
    def of(population: Population) -> Facts:
        """Loads the first, the middle and the last client. A worker may know the population by another name."""
        size = population.size
        sample = [population.client(number) for number in (0, size // 2, size - 1)]
        return Facts(__version__, digest(population.identity, size, sample), size)


class Answer(NamedTuple):
    """What a worker gives for a shard, and says of itself each time: it may have been started again, somewhere else."""

    block: Block
    facts: Facts
    host: str
    seconds: float


@dataclass(frozen=True)
class Letter:
    """What a worker is told once: what every client shares, and where their data are. No record, and no key."""

    job: bytes  # pickled by itself: to read it, modules of the user's must be found
    origin: bytes
    plan: Plan
    diagnostics: bool
    place: str  # the working folder, where modules and data may lie
    path: tuple[str, ...]
    data: str | None  # where named data sets lie, unless the host says otherwise

    @staticmethod
    def to_workers(clients: Clients, dumps: Callable[[object], bytes] = pickle.dumps) -> Letter:
        """Refuses what workers of one core cannot do, and a population that they could not build."""
        if clients.plan.workers > 1:
            raise BadValue(
                f"{clients.plan}: a worker elsewhere has one thread, and a shard is the same wherever it is computed. Give "
                f"{replace(clients.plan, workers=1)}, or leave the plan out."
            )
        if (device := clients.job.example.x.device.type) != "cpu":
            raise BadValue(f"device={device!r}: a worker elsewhere has one core. Use cpu, or train in this process.")
        origin = origin_of(clients.population)
        return Letter(
            job=dumps(clients.job),
            origin=dumps(origin),
            plan=alone(clients.plan),
            diagnostics=clients.diagnostics,
            place=os.getcwd(),
            path=tuple(word for word in sys.path if word),
            data=os.environ.get(_DATA),
        )


def given(found: _Given | DataError) -> _Given:
    """What a worker gave, or its refusal."""
    if isinstance(found, DataError):
        raise found
    return found


class Worker:
    """Trains shards by one thread. Its data are loaded when they are first needed."""

    def __init__(self, letter: Letter) -> None:
        torch.set_num_threads(1)
        self._letter = letter
        self._ready: tuple[Here, Facts] | None = None

    def facts(self) -> tuple[Facts, str] | DataError:
        """What it is and which data it has, and on which host; or why it cannot be said."""
        try:
            return self._prepared()[1], socket.gethostname()
        except SfumatoError as error:
            return DataError(f"a worker on {socket.gethostname()}: {words_of(error)}")

    def shard(self, start: Start, ids: Sequence[int]) -> Answer | DataError:
        """Train these clients, and add what they send. What it refuses is a value too: it reaches the user without a traceback."""
        try:
            here, facts = self._prepared()
            began = time.perf_counter()
            block = added(here.clients.job.slots, start, here.blocks(start, ids))
            return Answer(block=block, facts=facts, host=socket.gethostname(), seconds=time.perf_counter() - began)
        except SfumatoError as error:
            return DataError(f"a worker on {socket.gethostname()}: {words_of(error)}")

    def _prepared(self) -> tuple[Here, Facts]:
        if self._ready is None:
            letter = self._letter
            if os.path.isdir(letter.place):
                os.chdir(letter.place)
            sys.path += [word for word in letter.path if word not in sys.path and os.path.exists(word)]
            if letter.data is not None:
                os.environ.setdefault(_DATA, letter.data)
            try:
                job: Job = pickle.loads(letter.job)
                origin: Origin = pickle.loads(letter.origin)
            except (ImportError, AttributeError) as error:
                raise BadValue(
                    f"{error}. Install what the run imports on every host, or train where it lies."
                ) from error
            population = origin.build()
            self._ready = (
                Here(Clients(job=job, population=population, plan=letter.plan, diagnostics=letter.diagnostics)),
                Facts.of(population),
            )
        return self._ready


def alike(population: Population, found: Sequence[tuple[Facts, str]]) -> Facts:
    """What all workers are, where they agree with this process."""
    expected = Facts.of(population)
    for facts, host in found:
        agreed(expected, facts, host)
    return expected


def agreed(expected: Facts, found: Facts, host: str) -> None:
    """Refuse a worker that computes something else, or has the data of other people."""
    if found == expected:
        return
    if (found.data, found.clients) != (expected.data, expected.clients):
        raise DataError(
            f"the data on {host} are not those of this run: {found.clients} clients, digest {found.data}; here "
            f"{expected.clients}, {expected.data}. Bring the same files to every host. Nothing of this shard was used."
        )
    raise DataError(
        f"{host} has sfumato {found.version}, and this run is of {expected.version}. Install the same on every host. Nothing of "
        "this shard was used."
    )
