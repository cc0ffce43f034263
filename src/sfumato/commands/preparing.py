"""A word while nothing can be shown yet: torch is loaded, data are read, noise is found. Only for somebody at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ERASE = "\r\x1b[K"


@contextmanager
def preparing(quiet: bool = False, words: str = "preparing ...") -> Iterator[None]:
    """Say so on the terminal at once, and take it back at the end, however that comes; a file or a pipe gets nothing.

    A terminal that cannot erase keeps the words, on a line of their own.
    """
    stream = sys.stderr
    if quiet or not stream.isatty():
        yield
        return
    plain = os.environ.get("TERM", "") in ("", "dumb")
    print(words, end="\n" if plain else "", file=stream, flush=True)
    try:
        yield
    finally:
        if not plain:
            print(_ERASE, end="", file=stream, flush=True)
