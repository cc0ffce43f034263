"""A live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato.run import Line, Run


def follow(run: Run, *, quiet: bool) -> None:
    """Train to the end, and show how it goes."""
    if quiet:
        for _ in run:
            pass
    elif sys.stderr.isatty():
        _bar(run)
    else:
        _lines(run)


def _words(line: Line) -> str:
    accuracy = "" if line.accuracy is None else f"  accuracy {line.accuracy:.4f}"
    return accuracy + ("" if line.epsilon is None else f"  epsilon {line.epsilon:.4g}")


def _bar(run: Run) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    rounds = run.prepared.request.rounds
    columns = (
        TextColumn("round {task.completed}/{task.total}"),
        BarColumn(bar_width=None),
        TextColumn("{task.description}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=rounds, completed=run.simulation.start.round)
        for line in run:
            progress.update(task, completed=line.round, description=_words(line) or None)


def _lines(run: Run) -> None:
    rounds = run.prepared.request.rounds
    started, first = time.monotonic(), run.simulation.start.round
    shown = started - 10.0
    for line in run:
        now = time.monotonic()
        if now - shown < 2.0 and line.round != rounds:
            continue
        shown = now
        left = (now - started) / max(1, line.round - first) * (rounds - line.round)
        print(f"round {line.round}/{rounds}{_words(line)}  {left:.0f} s left", file=sys.stderr, flush=True)
