"""A live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from sfumato.guarantee import rounded_up

if TYPE_CHECKING:
    from sfumato.run.run import Run


_ROOM = 60  # columns that numbers, a bar and the time left need; numbers are never cut off


def follow(run: Run, *, quiet: bool) -> None:
    """Train to the end, and show how it goes."""
    if quiet:
        for _ in run:
            pass
    elif sys.stderr.isatty():
        _bar(run)
    else:
        _lines(run)


def _words(run: Run) -> str:
    """What the last line says."""
    name, line = run.prepared.objective.primary, run.lines[-1]
    accuracy = "" if line.accuracy is None else f"{name} {line.accuracy:.4f}"
    epsilon = "" if line.epsilon is None else f"epsilon {rounded_up(line.epsilon, 4)}"
    return "  ".join(word for word in (accuracy, epsilon) if word)


def _bar(run: Run) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    rounds = run.prepared.request.rounds
    console = Console(stderr=True)
    columns: tuple[ProgressColumn, ...] = (
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.description}"),
    )
    if console.width >= _ROOM:
        bar = (BarColumn(bar_width=None), columns[1], TimeRemainingColumn(compact=True))
        columns = (TextColumn("round {task.completed}/{task.total}"), *bar)
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=rounds, completed=run.start.round)
        for done in run:
            progress.update(task, completed=done.round, description=_words(run) or None)


def _lines(run: Run) -> None:
    rounds = run.prepared.request.rounds
    started, first = time.monotonic(), run.start.round
    shown, words = started - 10.0, ""
    for done in run:
        words = _words(run) or words  # what was known last, where nothing is evaluated
        now = time.monotonic()
        if now - shown < 2.0 and done.round != rounds:
            continue
        shown = now
        left = (now - started) / max(1, done.round - first) * (rounds - done.round)
        parts = (f"round {done.round}/{rounds}", words, f"{left:.0f} s left")
        print("  ".join(part for part in parts if part), file=sys.stderr, flush=True)
