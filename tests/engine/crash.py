"""Child processes that train and are killed at a chosen call, never by the clock. Not a test itself.

The children come from a fork server that has imported everything and computed nothing, so each costs little and is
still a process of its own, which SIGKILL ends like any other.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

from sfumato.engine.checkpoint import Checkpoint
from sfumato.errors import LedgerError
from sfumato.ledger.ledger import Ledger
from tests.patience import PATIENCE


class Kill(NamedTuple):
    """SIGKILL before or after the `call`-th call of a function, e.g. `sfumato.ledger.ledger:Ledger.reserve`."""

    when: str
    function: str
    call: int = 1


def _arm(kill: Kill) -> None:
    home, _, path = kill.function.partition(":")
    *owners, name = path.split(".")
    owner: Any = import_module(home)
    for word in owners:
        owner = getattr(owner, word)
    inner, calls = getattr(owner, name), 0

    def armed(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == kill.call and kill.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = inner(*arguments, **named)
        if calls == kill.call and kill.when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, armed)


def _train(words: list[str], place: Path, kill: Kill | None, threads: int, command: str = "train") -> None:
    from sfumato.cli import run

    os.chdir(place)
    torch.set_num_threads(threads)
    if kill is not None:
        _arm(kill)
    sys.exit(run([command, *words]))


_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "sfumato.cli",
        "sfumato.commands.app",
        "sfumato.run.run",
        "sfumato.run.prepare",
        "sfumato.report",
        "sklearn.datasets",
        "matplotlib.figure",
        "matplotlib.backends.backend_svg",
        "pydantic",
    ]
)


def train(words: list[str], place: Path, kill: Kill | None = None, threads: int = 1, command: str = "train") -> int:
    """The exit status of `sfumato train`, or of another command, in a process of its own; -9 if it was killed."""
    child = _CONTEXT.Process(target=_train, args=(words, place, kill, threads, command))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode


def reservations(folder: Path) -> int:
    """How many reservations the ledger has on disk: of rounds, and of a step before the first."""
    path = folder / "ledger.sqlite"
    with suppress(LedgerError):  # killed while it was made
        return Ledger(path, None).count if path.exists() else 0
    return 0


def stored(folder: Path) -> int:
    """How many rounds the checkpoint stands for."""
    checkpoint = Checkpoint.read(folder)
    return checkpoint.round if checkpoint else 0


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without their times."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]
