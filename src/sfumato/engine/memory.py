"""Freed memory stays with the process while a run goes on.

A round frees tensors of many megabytes and asks for them again. By default glibc gives such memory back to the system, and every
page costs a fault when it is asked for anew: a third of a round of a small perceptron. With other allocators nothing is done, nor
where the environment sets one up.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGEST = 2**25  # the largest threshold that glibc takes
_KEPT = 2**29  # free bytes at the end of the heap that are kept


def keep_freed_memory() -> None:
    """From now on, for the whole process: its resident size stays near its peak."""
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    if (mallopt := _function("mallopt")) is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _KEPT)


def give_back() -> None:
    """What is free now goes back to the system."""
    if (trim := _function("malloc_trim")) is not None:
        trim(0)


def _function(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):  # a system without a C library to ask
        return None
