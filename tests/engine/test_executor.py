"""Whoever computes the blocks of a cohort, the sum is the same to the bit."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from sfumato import HelperBlend, Plan, Poisson, RealisedMean, Round, Sgd, Unit, classification
from sfumato.claim import Claim
from sfumato.engine.executor import in_order, threads
from sfumato.engine.simulate import simulate
from sfumato.engine.workers import Here, on
from sfumato.local.dp_sgd import DpSgd
from sfumato.local.task import Task
from sfumato.pieces.protocol import LocalPiece
from sfumato.pieces.sampler import Everyone
from tests.helpers import dp_round, linear, made_up_population

PEOPLE = made_up_population([5, 1, 0, 12, 7, 3, 9, 4])
KEEPING = Round(
    sample=Everyone(),
    local=DpSgd(steps=2, batch=Poisson(0.5), records=5),
    aggregate=RealisedMean(),
    personal=HelperBlend(0.3),
    unit=Unit.RECORD,
)


class LastFirst(Executor):
    """Does nothing until a result is asked for, and then the newest job first."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        executor = self

        class Lazy(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                while executor.waiting:
                    future, work = executor.waiting.pop()
                    future.set_result(work())
                return super().result(timeout)

        future = Lazy()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future


def final(round: Round, plan: Plan, executor: Executor | None = None) -> Any:
    cohort = Here if executor is None else on(executor)
    run = simulate(round, PEOPLE, linear(), classification(3), rounds=2, seed=0, plan=plan, cohort=cohort)
    *_, progress = run
    return progress


def test_processes_give_the_bits_of_threads() -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for round, plan in ((dp_round(), Plan("stacked", 2, 2)), (KEEPING, Plan(workers=2))):
            here, there = final(round, plan), final(round, plan, pool)
            assert torch.equal(here.params, there.params)
            assert here.memory.keys() == there.memory.keys()
            assert all(
                torch.equal(here.memory[client]["start"], there.memory[client]["start"]) for client in here.memory
            )


def test_the_sum_does_not_depend_on_who_is_done_first() -> None:
    plan = Plan("stacked", 2, 2)
    assert torch.equal(final(dp_round(), plan).params, final(dp_round(), plan, LastFirst()).params)


def test_few_jobs_are_in_work_at_once() -> None:
    asked: list[int] = []

    def jobs() -> Any:
        for number in range(10):
            asked.append(number)
            yield number

    with threads(2) as pool:
        results = in_order(pool, lambda number: number * number, jobs(), at_once=4)
        assert asked == [0, 1, 2, 3]  # at once, before any result is asked for
        assert list(results) == [number * number for number in range(10)]


@dataclass(frozen=True)
class Told(LocalPiece):
    """Plain training that notes with how many threads it is done."""

    def train(self, task: Task) -> torch.Tensor:
        THREADS.append(torch.get_num_threads())
        return Sgd(lr=0.1, epochs=1).train(task)

    def carry(self, claim: Claim) -> Claim:
        return claim


THREADS: list[int] = []


@pytest.mark.parametrize(("shards", "used"), [(1, {2}), (3, {1})])
def test_a_shard_is_computed_by_one_thread_wherever_it_is(shards: int, used: set[int]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    THREADS.clear()
    try:
        run = simulate(
            dp_round(local=Told()), PEOPLE, linear(), classification(3), rounds=2, seed=0, plan=Plan(shards=shards)
        )
        list(run)
        assert set(THREADS) == used and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
