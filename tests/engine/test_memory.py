"""Freed memory is kept where glibc would give it back, and nowhere else."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import pytest

from sfumato.engine import memory

FAULTS = """
import resource, torch
from sfumato.engine.memory import keep_freed_memory
{before}
for turn in range(20):
    if turn == 10:
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    one, two = torch.ones(3_000_000), torch.ones(3_000_000)
    del one, two
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
"""


def faults(before: str) -> int:
    """Page faults of twenty tensors of 12 MB, after others of that size were freed."""
    run = subprocess.run(
        [sys.executable, "-c", FAULTS.format(before=before)], capture_output=True, text=True, check=True
    )
    return int(run.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_memory_that_was_freed_costs_no_fault_again() -> None:
    assert faults("keep_freed_memory()") < 3000  # nearly 60,000 where they go back each time, as they mostly do


def test_an_environment_that_sets_up_the_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise AssertionError(name)

    monkeypatch.setattr(memory, "_function", refuse)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    memory.keep_freed_memory()


def test_without_such_a_library_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: None) -> Any:
        raise OSError("no C library")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    memory.keep_freed_memory()
    memory.give_back()
