"""Sentences in a terminal: broken between words where it ends, and left whole in a file or a pipe.

Where nobody looks, a paragraph is one line, as `grep` wants it. Whoever sets COLUMNS has chosen a width for both.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable

_NARROWEST = 20
_GAP = re.compile(r"\s{2,}(?=\S)")


def columns(terminal: bool) -> int | None:
    """How wide lines may be; None where they are left whole."""
    chosen = os.environ.get("COLUMNS", "")
    if not (chosen.isdigit() and int(chosen)) and not terminal:
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def wrapped(line: str, width: int | None) -> str:
    """A line broken between words; what hangs over stands under the last column that leaves it half of the width.

    >>> print(wrapped("  unit   one client of those that there are", 30))
      unit   one client of those
             that there are
    """
    if width is None or len(line) <= width:
        return line
    stops = [0, len(line) - len(line.lstrip()), *(gap.end() for gap in _GAP.finditer(line.rstrip()))]
    hanging = " " * max(stop for stop in stops if stop <= width // 2)
    broken = textwrap.wrap(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False, tabsize=4
    )
    return "\n".join(broken)


def print_lines(*lines: str, err: bool = False) -> None:
    """Print lines, each as wide as the terminal is."""
    stream = sys.stderr if err else sys.stdout
    width = columns(stream.isatty())
    print("\n".join(wrapped(line, width) for line in _each(lines)), file=stream, flush=True)


def _each(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        yield from line.split("\n")
