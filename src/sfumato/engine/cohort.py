"""The clients' half of a round: load, train, clip, add. Rows of a cohort are added in a fixed order, block after block."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import nn

from sfumato.data.population import Population, PublicData, Records
from sfumato.engine.plan import Plan
from sfumato.engine.slots import Kept, Opening, Slots
from sfumato.errors import DataError, SfumatoError
from sfumato.key import Key
from sfumato.local.task import Task

if TYPE_CHECKING:
    from sfumato.objective import Objective


@dataclass(frozen=True)
class Job:
    """What every client of a run shares: public facts and the model."""

    slots: Slots
    module: nn.Module
    objective: Objective
    example: Records  # shapes and types only


@dataclass(frozen=True)
class Total:
    """The sum of some clients' weighted rows, the sum of the weights, and (not private) what the clip met."""

    rows: torch.Tensor
    weight: float
    norms: tuple[float, ...]
    trained: dict[int, torch.Tensor] = field(default_factory=dict)  # each client's own row, where it keeps one


Memory = dict[int, torch.Tensor]
_PART = 2**16  # coordinates that are added at once, so that their sum stays in the cache
_WAITING = 2**25  # bytes of messages that wait to be added together


def _results(pending: deque[Future[Total]], more: Iterator[Future[Total]]) -> Iterator[Total]:
    while pending:
        yield pending.popleft().result()
        pending.extend(islice(more, 1))


def _add(total: torch.Tensor, messages: list[torch.Tensor]) -> None:
    """Add messages in their order, part by part, and forget them: the sum does not depend on how many come at once."""
    for sum_of, *some in zip(
        torch.split(total, _PART), *(torch.split(message, _PART) for message in messages), strict=True
    ):
        for part in some:
            sum_of += part
    messages.clear()


@dataclass(frozen=True)
class _Start:
    """Where a round begins."""

    params: torch.Tensor
    opening: Opening
    memory: Memory

    def rows(self, ids: Sequence[int]) -> torch.Tensor:
        if not self.memory:
            return self.params.expand(len(ids), -1)
        return torch.stack([self.memory.get(client, self.params) for client in ids])


class Cohort:
    """Runs the clients' half of rounds. Workers and their copies of the module live as long as it does."""

    def __init__(self, job: Job, population: Population, plan: Plan, diagnostics: bool = False) -> None:
        self.job, self.population, self.plan, self.diagnostics = job, population, plan, diagnostics
        self._own = threading.local()
        self._threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(plan.workers, initializer=self._start_worker) if plan.workers > 1 else None

    def _start_worker(self) -> None:
        torch.set_num_threads(1)

    def close(self) -> None:
        """Stop the workers and give the threads back."""
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

    def open(self, params: torch.Tensor, number: int, key: Key, kept: Kept | None = None) -> Opening:
        """Begin a round: let the pieces prepare what all clients share."""

        def train(data: PublicData) -> torch.Tensor:
            own = key.child("public", round=number)
            return self._train(self._task(_Start(params, Opening(number, key), {}), [-1], [data.records], [own]), [-1])[
                0
            ]

        return self.job.slots.open(number, key, kept, train)

    def total(self, params: torch.Tensor, ids: Sequence[int], opening: Opening, memory: Memory | None = None) -> Total:
        """Train the cohort from `params`, or from what each client remembers, and add its messages."""
        weight = 0.0
        norms: list[float] = []
        trained: dict[int, torch.Tensor] = {}
        start = _Start(params, opening, memory or {})
        waiting: list[torch.Tensor] = []
        with nullcontext() if self._pool is None else self._waiting():
            parts = self._parts(start, ids)
            rows = torch.zeros(self.job.slots.width(opening), dtype=torch.float64, device=params.device)
            for part in parts:
                trained.update(part.trained)
                waiting.append(part.rows)
                if sum(some.nbytes for some in waiting) >= _WAITING:
                    _add(rows, waiting)
                weight += part.weight
                norms.extend(part.norms)
        _add(rows, waiting)  # with all threads, as no worker is busy any more
        return Total(rows, weight, tuple(norms), trained)

    def _parts(self, start: _Start, ids: Sequence[int]) -> Iterator[Total]:
        """The blocks' sums in their order, so that the whole does not depend on timing. Workers begin at once."""
        size = self.plan.share(len(ids))
        blocks = [list(ids[first : first + size]) for first in range(0, len(ids), size)]
        if self._pool is None:
            return (self._block(start, block) for block in blocks)
        pool = self._pool
        submitted = (pool.submit(self._block, start, block) for block in blocks)
        first = deque(islice(submitted, 2 * self.plan.workers))  # few at a time keep few rows in memory
        return _results(first, submitted)

    def _block(self, start: _Start, ids: list[int]) -> Total:
        opening = start.opening
        clients = [self._load(client) for client in ids]
        keys = [opening.key.child("client", id=client, round=opening.number) for client in ids]
        rows = self._train(self._task(start, ids, clients, keys), ids)
        sizes = torch.tensor([records.count for records in clients], device=rows.device)
        norms = tuple(rows.norm(dim=1).tolist()) if self.diagnostics else ()
        messages = self.job.slots.messages(rows, sizes, keys, opening)
        total, weight = self.job.slots.weighted_sum(messages, sizes)
        keeps = self.job.slots.round.personal is not None
        return Total(total, weight, norms, dict(zip(ids, rows, strict=True)) if keeps else {})

    def _task(self, start: _Start, ids: list[int], clients: list[Records], keys: list[Key]) -> Task:
        if not hasattr(self._own, "module"):  # each thread has a copy of its own
            self._own.module = copy.deepcopy(self.job.module)
        return Task(
            self.plan.forward(self._own.module),
            self.job.slots.layout,
            self.job.objective.loss,
            start.params,
            start.rows(ids),
            clients,
            keys,
            start.opening.number,
            ids,
        )

    def _load(self, client: int) -> Records:
        records = self.population.client(client).train
        example = self.job.example
        for name, found, wanted in (("inputs", records.x, example.x), ("targets", records.y, example.y)):
            if found.shape[1:] != wanted.shape[1:] or found.dtype != wanted.dtype:
                raise DataError(
                    f"client {client}: {name} have shape {tuple(found.shape[1:])} and type {found.dtype}, but other clients' have "
                    f"{tuple(wanted.shape[1:])} and {wanted.dtype}. Mend the client's data, or leave the client out."
                )
        return Records(records.x.to(example.x.device), records.y.to(example.y.device))

    def _train(self, task: Task, ids: list[int]) -> torch.Tensor:
        try:
            rows: torch.Tensor = self.job.slots.round.local.train(task)
        except SfumatoError:
            raise
        except Exception as error:
            if len(ids) == 1:
                raise DataError(f"client {ids[0]}: local training failed: {error}") from error
            for place, client in enumerate(ids):  # find out whose data it was
                self._train(task.only(place), [client])
            raise DataError(f"clients {ids[0]} to {ids[-1]}: local training failed: {error}") from error
        if rows.shape != (len(ids), task.layout.dimension):
            raise DataError(f"local training returned rows of shape {tuple(rows.shape)}.")
        return rows if getattr(self.job.slots.round.local, "fresh_rows", False) else rows.clone()
