"""Where maps of records are computed: on the CPU, by one thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

_Step = TypeVar("_Step")


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes with one thread.

    Chunks of records are too small to be shared out: threads would wait for each other, on a busy machine for most of the time.
    And kernels that cut a sum among threads round by how many there are, so that what a record becomes would depend on it.
    """
    before = torch.get_num_threads()
    if before > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if before > 1:
            torch.set_num_threads(before)


def on_cpu(call: Callable[[_Step, Tensor], Tensor]) -> Callable[[_Step, Tensor], Tensor]:
    """Let a step compute on the CPU, and give its result where the records are.

    That a record's map depends on no other record, to the last bit, is known of the CPU's kernels: a GPU may round the factors
    of a product, so that whole numbers are no longer added exactly.
    """

    @functools.wraps(call)
    def moved(step: _Step, x: Tensor) -> Tensor:
        return call(step, x.cpu()).to(x.device)

    return moved
