"""A run as its files tell it now: how far it is, what it has spent, and whether anybody still trains it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sfumato.errors import SfumatoError
from sfumato.report import parts
from sfumato.report.audits import audits
from sfumato.report.curves import thinned
from sfumato.report.promise import guarantee
from sfumato.report.read import Record, finite, read_runs
from sfumato.report.words import MISSING, bound, label, measured, number
from sfumato.run.lock import is_held
from sfumato.run.request import Request, resolved
from sfumato.run.schema import read_text
from sfumato.ui.folder import Runs, checked

Line = dict[str, Any]


def every(runs: Runs) -> list[dict[str, Any]]:
    """All runs in a few words each; one that cannot be read says why."""
    found = []
    for name, folder in runs.all().items():
        try:
            found.append(_brief(name, folder, _seen(checked(folder), _signature(folder))))
        except (SfumatoError, OSError, ValueError, TypeError, KeyError) as error:  # it must not hide the others
            found.append({"name": name, "state": "unreadable", "words": str(error)})
    return found


@dataclass(frozen=True)
class Seen:
    """What the files of a run say; `record` is there once it has ended."""

    asked: Request
    delta: float | None
    lines: tuple[Line, ...]
    record: Record | None

    @property
    def measure(self) -> str:
        """The name of what stands under `accuracy`; while there is no run.json to say it, that of the metric with its value."""
        if self.record is not None:
            return self.record.measure
        for line in reversed(self.lines):
            metrics = line.get("metrics")
            for name, value in metrics.items() if isinstance(metrics, dict) else ():
                if value is not None and value == line.get("accuracy"):
                    return str(name)
        return "accuracy"

    @property
    def done(self) -> int:
        """How many rounds have been shown."""
        return int(self.lines[-1]["round"]) if self.lines else 0

    @property
    def left(self) -> int:
        """How many are still asked for."""
        return max(0, self.asked.rounds - self.done)

    def last(self, key: str) -> float | None:
        """The last value that there is."""
        values = [value for line in self.lines if (value := finite(line.get(key))) is not None]
        return values[-1] if values else None


def _brief(name: str, folder: Path, seen: Seen) -> dict[str, Any]:
    """What a run is, and how far."""
    asked, record = seen.asked, seen.record
    state, words = _state(folder, seen)
    return {
        "name": name,
        "state": state,
        "words": words,
        "recipe": asked.recipe if asked.pieces is None else "a round from Python",
        "data": asked.data.name if record is None else record.text("data"),
        "round": seen.done,
        "rounds": asked.rounds,
        "left": seen.left,
        "measure": label(seen.measure),
        "accuracy": parts.accuracy(record) if record else measured(seen.measure, seen.last("accuracy")),
        "epsilon": parts.epsilon(record) if record else bound(seen.last("epsilon")),
        "delta": parts.delta(record) if record else bound(seen.delta, 3),
        "audit": _verdict(record),
    }


def whole(runs: Runs, name: str) -> dict[str, Any]:
    """All that the page shows of one run: its numbers, its curves, and at the end what is guaranteed and what audits found."""
    folder = runs.find(name)
    seen = _seen(folder, _signature(folder))
    lines, record, measure = seen.lines, seen.record, seen.measure
    curves = {
        "accuracy": _curve(lines, lambda line: line.get("accuracy"), lambda value: measured(measure, value)),
        "epsilon": _curve(lines, lambda line: line.get("epsilon"), bound) if record is None or record.proven else None,
        "loss": _curve(lines, _loss, number) if measure != "loss" else None,
    }
    return {
        **_brief(name, folder, seen),
        "curves": curves,
        "guarantee": "" if record is None else guarantee(record),
        "audits": "" if record is None else audits(record) or "",
    }


def _signature(folder: Path) -> tuple[tuple[int, int], ...]:
    """Changes when a file does: runs that have ended are not read again and again."""
    found = []
    for name in ("run.toml", "run.json", "metrics.jsonl", "audit.json"):
        try:
            about = (folder / name).lstat()
            found.append((about.st_mtime_ns, about.st_size))
        except FileNotFoundError:
            found.append((0, 0))
    return tuple(found)


@lru_cache(maxsize=512)
def _seen(folder: Path, signature: tuple[tuple[int, int], ...]) -> Seen:
    record = read_runs([folder])[0] if (folder / "run.json").exists() else None
    toml = folder / "run.toml"
    return Seen(Request.from_toml(toml), finite(resolved(toml).get("delta")), _lines(folder), record)


def _state(folder: Path, seen: Seen) -> tuple[str, str]:
    if seen.record is not None:
        stopped = seen.record.text("stopped")
        return ("stopped", stopped) if stopped else ("finished", "Finished.")
    held = is_held(folder)
    if held:
        left = f"{number(seen.left)} round{'' if seen.left == 1 else 's'} left"
        return ("training", f"Training: {left}.") if seen.lines else ("preparing", f"Preparing: {left}.")
    ended = "Not finished, and nobody trains it: it was interrupted or killed."
    if held is None:
        ended = "Not finished. Whether somebody trains it cannot be told here."
    return (
        "unfinished",
        f"{ended} {number(seen.left)} of {number(seen.asked.rounds)} rounds are left, and --resume goes on.",
    )


def _lines(folder: Path) -> tuple[Line, ...]:
    """The whole lines of metrics.jsonl so far, one for each round; whoever writes it may be in the middle of one."""
    found: dict[int, Line] = {}
    for text in (read_text(folder / "metrics.jsonl") or "").splitlines():
        try:
            line = json.loads(text)
            found[int(line["round"])] = line
        except (ValueError, TypeError, KeyError, RecursionError):
            break
    return tuple(found[round] for round in sorted(found))


def _loss(line: Line) -> Any:
    metrics = line.get("metrics")
    return metrics.get("loss") if isinstance(metrics, dict) else None


def _curve(lines: Sequence[Line], pick: Callable[[Line], Any], say: Callable[[float], str]) -> dict[str, Any] | None:
    points = [(float(line["round"]), value) for line in lines if (value := finite(pick(line))) is not None]
    kept = thinned(points)
    said = [f"round {number(round)}: {say(value)}" for round, value in kept]
    return {"xs": [x for x, _ in kept], "ys": [y for _, y in kept], "said": said} if kept else None


def _verdict(record: Record | None) -> str:
    """What an audit of the run as it is now came to, in two words."""
    if record is None or audits(record) is None:
        return MISSING
    if record.audit.get("broken") is True:
        return "contradicted"
    return "claim refuted" if record.audit.get("refuted") is True else "not contradicted"
