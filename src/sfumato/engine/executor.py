"""Where the blocks of a cohort are computed: any `concurrent.futures.Executor` will do, of threads, processes or a cluster.

Results come back in the order of the blocks, so a sum depends on who takes part and on the plan, never on timing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")


def threads(workers: int) -> ThreadPoolExecutor:
    """Workers in this process, each with one core."""
    return ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))


def in_order(executor: Executor, work: Callable[[Job], Result], jobs: Iterable[Job], at_once: int) -> Iterator[Result]:
    """The results in the order of their jobs. Work begins at once, on a few jobs: few keep few rows in memory."""
    submitted = (executor.submit(work, job) for job in jobs)
    first = deque(islice(submitted, at_once))
    return _results(first, submitted)


def _results(pending: deque[Future[Result]], more: Iterator[Future[Result]]) -> Iterator[Result]:
    while pending:
        yield pending.popleft().result()
        pending.extend(islice(more, 1))
