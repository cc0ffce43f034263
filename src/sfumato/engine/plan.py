"""How the cohort is computed on this machine: which way, how many clients at once, how many workers. Measured, not guessed.

A plan changes speed, not results: block and loop agree to 1e-3 of an update's norm, and a plan that does not is dropped.
It is stored with the run, so that a resumed run goes on in the same way, to the same bits.
"""

from __future__ import annotations

import copy
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from sfumato.data.population import Records
from sfumato.engine.executor import threads
from sfumato.errors import BadValue
from sfumato.gradients import OneByOne, Stacked
from sfumato.key import Key
from sfumato.local.task import Task
from sfumato.pieces.protocol import LocalPiece
from sfumato.update import Layout

if TYPE_CHECKING:
    from sfumato.engine.slots import Slots
    from sfumato.objective import Objective

PATHS = ("loop", "stacked", "vmapped")
_MOST_CLIENTS = 64
_BLOCK_BYTES = 2**24  # of rows; glibc gives the pages of tensors from 2**25 on back each time
_BYTES_PER_PARAMETER = 44  # row, start, gradient, momentum, update (float32); sum, noise and draws (float64)
_SMALL_BLOCKS = (8, 32)
_ENOUGH_SECONDS = 2.0
_LOOP_ONLY = (nn.modules.conv._ConvNd, nn.RNNBase)


@dataclass(frozen=True)
class Plan:
    """One way to run a cohort: in blocks, on workers; in `shards`, each added up where it is computed."""

    path: str = "loop"
    block: int = 1
    workers: int = 1
    shards: int = 1

    def __post_init__(self) -> None:
        least = min(self.block, self.workers, self.shards)
        if self.path not in PATHS or least < 1 or (self.path == "loop" and self.block > 1):
            raise BadValue(
                f"{self}: the path is one of {', '.join(PATHS)}; a loop has block=1; workers and shards are at least 1."
            )

    def share(self, cohort: int) -> int:
        """How many clients a block of this cohort has: as even as can be, so that no worker waits for another."""
        waves = -(-cohort // (self.block * self.workers))
        return max(1, -(-cohort // max(1, waves * self.workers)))

    def forward(self, module: nn.Module) -> Stacked | OneByOne:
        return OneByOne(module) if self.path == "loop" else Stacked(module, vmapped=self.path == "vmapped")


def choose(
    slots: Slots, module: nn.Module, objective: Objective, example: Records, population: int, shards: int = 1
) -> Plan:
    """The fastest plan for the expected cohort, from a few steps on made-up records; no private data is looked at.

    Of several shards each is computed by one thread, so that is what is measured.
    """
    cohort = slots.round.sample.expected(population)
    if shards == 1:
        return _fastest(slots, module, objective, example, cohort)
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return replace(_fastest(slots, module, objective, example, cohort / shards), shards=shards)
    finally:
        torch.set_num_threads(cores)


def _fastest(slots: Slots, module: nn.Module, objective: Objective, example: Records, expected: float) -> Plan:
    # Threads inside a block, or a block for each worker; a small one may stay in its core's cache.
    round, layout = slots.round, slots.layout
    workers = sorted({1, torch.get_num_threads() if example.x.device.type == "cpu" else 1})
    cohort = max(1, math.ceil(expected))
    if round.local.trial() is None:
        return Plan(workers=workers[-1] if cohort >= workers[-1] else 1)
    alone = slots.alone or round.local.one_by_one  # one client is trained after another, whatever the block
    if cohort == 1 and alone:
        return Plan()  # one client keeps one worker busy, which has all threads
    trial = _Trial(round.local, module, layout, objective, example)
    candidates = [Plan(workers=many) for many in workers]
    block = min(_MOST_CLIENTS, _BLOCK_BYTES // (4 * layout.dimension))
    if block > 1 and not alone and not any(isinstance(part, _LOOP_ONLY) for part in module.modules()):
        sizes = [*(few for few in _SMALL_BLOCKS if few < block), block]
        works = (path for path in ("stacked", "vmapped") if trial.agrees(Plan(path, block)))
        if (path := next(works, None)) is not None:
            candidates += [Plan(path, size, many) for size in sizes for many in workers]
    return min(candidates, key=lambda plan: trial.seconds(plan, cohort)) if len(candidates) > 1 else candidates[0]


def check_memory(layout: Layout, messages: int = 0) -> None:
    """Refuse a model whose round cannot fit, before anything is spent; `messages` are held at once, twice over."""
    try:
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return
    needed = (_BYTES_PER_PARAMETER + 8 * messages) * layout.dimension
    if needed > available:
        raise BadValue(
            f"a round over {layout.dimension:,} trainable parameters needs about {needed / 2**30:.1f} GiB, and "
            f"{available / 2**30:.1f} GiB are free. Use a smaller model, or freeze a part of it (requires_grad_(False))."
        )


class _Trial:
    def __init__(
        self, local: LocalPiece, module: nn.Module, layout: Layout, objective: Objective, example: Records
    ) -> None:
        self.module, self.layout, self.objective = copy.deepcopy(module), layout, objective
        short = local.trial()
        assert short is not None, "there is something to measure"
        self.local, records = short
        self.clients = [made_up(example, records, client) for client in range(_MOST_CLIENTS)]
        self.params = layout.row(module).to(example.x.device)

    def rows(self, plan: Plan, clients: Sequence[int], module: nn.Module, uneven: bool = False) -> torch.Tensor:
        keys = [Key.from_seed(client) for client in clients]
        chosen = [self.clients[client] for client in clients]
        if uneven:  # so that some batches are padded
            cuts = [records.count - client for client, records in zip(clients, chosen, strict=True)]
            chosen = [Records(x[:cut], y[:cut]) for (x, y), cut in zip(chosen, cuts, strict=True)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            starts = self.params.expand(len(keys), -1)
            task = Task(
                forward=plan.forward(module),
                layout=self.layout,
                loss=self.objective.loss,
                params=self.params,
                starts=starts,
                clients=chosen,
                keys=keys,
                round=0,
            )
            return self.local.train(task)

    def agrees(self, plan: Plan) -> bool:
        """Whether the plan works for this module and gives what a loop over clients gives."""
        try:
            together = self.rows(plan, range(3), self.module, uneven=True)
        except Exception:
            return False
        apart = torch.cat([self.rows(Plan(), [client], self.module, uneven=True) for client in range(3)])
        return bool(((together - apart).norm(dim=1) <= 1e-3 * apart.norm(dim=1) + 1e-12).all())

    def seconds(self, plan: Plan, cohort: int) -> float:
        """For a cohort: as many blocks at once as the plan has workers, again and again."""
        share = plan.share(cohort)
        blocks = -(-cohort // share)
        at_once, clients = min(plan.workers, blocks), range(min(share, _MOST_CLIENTS))
        if plan.workers == 1:  # a GPU works on behind one's back until a number is read
            return _least_seconds(lambda: self.rows(plan, clients, self.module)[-1:, -1:].cpu()) * blocks
        copies = [copy.deepcopy(self.module) for _ in range(at_once)]
        cores = torch.get_num_threads()
        try:
            with threads(at_once) as pool:
                run = lambda: list(pool.map(lambda own: self.rows(plan, clients, own), copies))  # noqa: E731
                return _least_seconds(run) * -(-blocks // at_once)
        finally:
            torch.set_num_threads(cores)


def _least_seconds(run: Callable[[], object]) -> float:
    """The fastest of a few: other programs on the machine can only add time. A slow model is not run again and again."""
    times: list[float] = []
    while len(times) < 5 and sum(times) < _ENOUGH_SECONDS:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def made_up(example: Records, records: int, client: int) -> Records:
    """Records of the same shapes and types, from a public seed."""
    shape = (records, *example.x.shape[1:])
    x = torch.zeros(shape, dtype=example.x.dtype)
    if x.is_floating_point() or example.inputs is not None:
        x = Key.from_seed(client).child("trial").normal(*shape).to(x if x.is_floating_point() else torch.float32)
    if example.inputs is not None:
        x = example.inputs.made_up(x)
    y = torch.zeros((records, *example.y.shape[1:]), dtype=example.y.dtype)
    return Records(x.to(example.x.device), y.to(example.y.device), inputs=example.inputs)
