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
from sfumato.engine.memory import kept_memory
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


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_memory_that_was_freed_costs_no_fault_again() -> None:
    assert (
        faults("kept = kept_memory(); kept.__enter__()") < 3000
    )  # nearly 60,000 where they go back each time, as they mostly do


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_afterwards_it_is_given_back() -> None:
    script = """
import os, torch
from sfumato.engine.memory import kept_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = resident()
with kept_memory():
    tensors = [torch.ones(2**22) for _ in range(16)]
    del tensors
    inside = resident()
print((inside - before) >> 20, (resident() - before) >> 20)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    inside, after = map(int, run.stdout.split())
    assert inside > 200 and after < 100


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_an_environment_that_sets_up_the_allocator_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(library: None) -> Any:
        raise AssertionError(library)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setenv(name, "2")
    with memory.kept_memory():
        pass


@pytest.mark.parametrize("error", [OSError, TypeError, AttributeError])
def test_without_such_a_library_nothing_happens(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(library: None) -> Any:
        raise error("no C library")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with memory.kept_memory():
        pass
