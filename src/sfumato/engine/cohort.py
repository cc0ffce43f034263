"""The clients' half of a round: load, train, clip, add. Rows of a cohort are added in a fixed order, block after block."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import nn

from sfumato.data.population import Population, Records
from sfumato.engine.plan import Plan
from sfumato.engine.slots import Slots
from sfumato.errors import DataError, SfumatoError
from sfumato.key import Key
from sfumato.local.forward import OneByOne, Stacked

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
    """The sum of a cohort's weighted rows, the sum of the weights, and (not private) what the clip met."""

    rows: torch.Tensor
    weight: float
    norms: tuple[float, ...]


class Cohort:
    """Runs the clients' half of rounds. Workers and their copies of the module live as long as it does."""

    def __init__(self, job: Job, population: Population, plan: Plan, diagnostics: bool = False) -> None:
        self.job, self.population, self.plan, self.diagnostics = job, population, plan, diagnostics
        self._own = threading.local()
        self._threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(plan.workers, initializer=self._start_worker) if plan.workers > 1 else None

    def _start_worker(self) -> None:
        torch.set_num_threads(1)
        self._own.module = copy.deepcopy(self.job.module)

    def close(self) -> None:
        """Stop the workers and give the threads back."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            torch.set_num_threads(self._threads)

    def total(self, params: torch.Tensor, ids: Sequence[int], number: int, key: Key) -> Total:
        """Train the cohort from `params` and add its messages."""
        rows = torch.zeros_like(params, dtype=torch.float64)
        weight = 0.0
        norms: list[float] = []
        for part in self._parts(params, ids, number, key):
            rows += part.rows
            weight += part.weight
            norms.extend(part.norms)
        return Total(rows, weight, tuple(norms))

    def _parts(self, params: torch.Tensor, ids: Sequence[int], number: int, key: Key) -> Iterator[Total]:
        size = self.plan.share(len(ids))
        blocks = [list(ids[start : start + size]) for start in range(0, len(ids), size)]
        if self._pool is None:
            yield from (self._block(params, block, number, key) for block in blocks)
            return
        # A bounded window keeps few rows in memory, and asking for results in order makes the sum independent of timing.
        window = 2 * self.plan.workers
        waiting = iter(blocks)
        pending = deque(self._pool.submit(self._block, params, block, number, key) for block in islice(waiting, window))
        while pending:
            yield pending.popleft().result()
            for block in islice(waiting, 1):
                pending.append(self._pool.submit(self._block, params, block, number, key))

    def _block(self, params: torch.Tensor, ids: list[int], number: int, key: Key) -> Total:
        clients = [self._load(client) for client in ids]
        keys = [key.child("client", id=client, round=number) for client in ids]
        rows = self._train(params, ids, clients, keys, number)
        sizes = torch.tensor([records.count for records in clients], device=params.device)
        norms = tuple(rows.norm(dim=1).tolist()) if self.diagnostics else ()
        messages = self.job.slots.messages(rows, sizes, keys, number, key)
        total, weight = self.job.slots.weighted_sum(messages, sizes)
        return Total(total, weight, norms)

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

    def _train(
        self, params: torch.Tensor, ids: list[int], clients: list[Records], keys: list[Key], number: int
    ) -> torch.Tensor:
        forward = self.plan.forward(getattr(self._own, "module", self.job.module))
        try:
            return self._rows(forward, params, clients, keys, number)
        except SfumatoError:
            raise
        except Exception as error:
            if len(ids) > 1:  # find out whose data it was
                for one in range(len(ids)):
                    self._train(params, ids[one : one + 1], clients[one : one + 1], keys[one : one + 1], number)
            raise DataError(f"client {ids[0]}: local training failed: {error}") from error

    def _rows(
        self, forward: Stacked | OneByOne, params: torch.Tensor, clients: list[Records], keys: list[Key], number: int
    ) -> torch.Tensor:
        layout, local = self.job.slots.layout, self.job.slots.round.local
        rows: torch.Tensor = local.train(forward, layout, self.job.objective.loss, params, clients, keys, number)
        if rows.shape != (len(clients), layout.dimension):
            raise DataError(f"local training returned rows of shape {tuple(rows.shape)}.")
        return rows
