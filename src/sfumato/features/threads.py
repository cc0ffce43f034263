"""Torch's own threads, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
