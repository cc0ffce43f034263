"""Freed memory stays with the process while rounds are computed.

A round frees tensors of many megabytes and asks for them again. By default glibc gives such memory back to the system, and every
page costs a fault when it is asked for anew: almost a third of a round of a small perceptron. Nothing is done with other
allocators, nor where the environment sets this one up.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGEST = 2**25  # bytes: the largest threshold for mappings that glibc takes, and to which it rises by itself
_KEPT = 2**29  # free bytes at the end of the heap that are kept


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep what is freed, up to 512 MB; afterwards give it back, and keep what glibc would keep after large tensors."""
    mallopt, trim = _functions()
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, _KEPT)
    try:
        yield
    finally:
        mallopt(_TRIM_THRESHOLD, 2 * _LARGEST)
        trim(0)


def _functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two functions of glibc, or two that do nothing."""
    if not any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        try:
            library = ctypes.CDLL(None)
            return library.mallopt, library.malloc_trim
        except (OSError, TypeError, AttributeError):  # no C library to ask, or another one
            pass
    return (lambda *_: None), (lambda *_: None)
