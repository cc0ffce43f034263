"""A live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sfumato.guarantee import rounded_up

if TYPE_CHECKING:
    from sfumato.run.run import Run


_ROOM = 60  # columns that numbers, a bar and the time left need; numbers are never cut off
_EVERY = 5.0  # seconds between two lines about runs


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


class Runs:
    """A live bar in a terminal, a line now and then elsewhere, nothing where nobody asked."""

    def __init__(self, say: Callable[[str], object] | None) -> None:
        self._say, self._bar, self._task = say, None if say is None or not sys.stderr.isatty() else _runs_bar(), None
        self._shown = self._started = time.monotonic()

    def __enter__(self) -> Callable[[int, int], object]:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=None)
        return self._told

    def _told(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done == 1:  # what came before was choosing a threshold
            self._shown = self._started = now
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif self._say is not None and (now - self._shown >= _EVERY or done == total):
            self._shown = now
            left = (now - self._started) / max(1, done - 1) * (total - done)
            self._say(f"run {done}/{total} of each world  {left:.0f} s left")

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _runs_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    count = TextColumn(
        "run {task.completed}/{task.total}" if console.width >= _ROOM else "{task.completed}/{task.total}"
    )
    more = (BarColumn(bar_width=None), TimeRemainingColumn(compact=True)) if console.width >= _ROOM else ()
    return Progress(count, *more, console=console)
