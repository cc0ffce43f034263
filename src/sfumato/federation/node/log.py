"""The owner's own log: in words what was asked, what was answered, and why something was refused. Nobody else is sent a line."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeAlias

Log: TypeAlias = Callable[[str], None]
_LONGEST = 2000  # characters of a line: some are a server's words, and a letter has millions


def file_log(path: Path) -> Log:
    """Lines at the end of a file that only its owner reads. Where it cannot be written, answers go on without it."""
    return partial(_write, path)


def _write(path: Path, line: str) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a") as file:
            words = " ".join(line[:_LONGEST].split())
            file.write(f"{datetime.now().isoformat(timespec='seconds')} {words}\n")
