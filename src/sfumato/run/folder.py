"""The files of a run folder: how they are begun, read and gone on with."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from sfumato.engine.checkpoint import make_folder, write_atomically
from sfumato.errors import BadValue, DataError
from sfumato.run.lock import Lock
from sfumato.run.prepare import model_of
from sfumato.run.releases import FOLDER as RELEASES
from sfumato.run.request import Request
from sfumato.run.schema import read_summary

_METRICS = "metrics.jsonl"
_RELEASED = (
    "basis.safetensors",
    "checkpoint.safetensors",
    "ledger.sqlite",
    _METRICS,
    "params.safetensors",
    "report.html",
    "run.json",
    "run.toml",
    "tune.json",
)


@dataclass(frozen=True)
class Line:
    """One line of metrics.jsonl: released values only."""

    round: int
    epsilon: float | None
    accuracy: float | None
    metrics: dict[str, float | None]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def append(self, folder: Path, wait: bool = True) -> None:
        """Write it to the end of metrics.jsonl, and `wait` until it is on disk, which one that holds no numbers need not."""
        with (folder / _METRICS).open("a") as file:
            file.write(self.to_json() + "\n")
            file.flush()
            if wait:
                os.fsync(file.fileno())


def locked_folder(folder: Path, resume: bool) -> Lock:
    """The folder of a run that is gone on with, or a new and empty one; held either way."""
    if resume:
        if not folder.is_dir():
            raise DataError(f"{folder}: there is no run to go on with. Give the folder of one, e.g. runs/first.")
        return Lock(folder)
    taken = BadValue(f"{folder} is there already, and is never overwritten. Give another folder, or resume the run.")
    make_folder(folder.parent)
    made = True
    try:
        folder.mkdir()
    except FileExistsError:
        made = False
        if not folder.is_dir() or _in_use(folder):
            raise taken from None
    held = Lock(folder, made)
    if _in_use(folder):  # somebody else was faster, and is done
        held.release()
        raise taken
    return held


def _in_use(folder: Path) -> bool:
    return any(path.name != Lock.NAME for path in folder.iterdir())


def read_lines(folder: Path, round: int) -> list[Line]:
    """The whole lines of metrics.jsonl up to the checkpoint's round; whatever follows is dropped from the file."""
    lines = [line for line in _whole_lines(folder) if line.round <= round]
    if (folder / _METRICS).exists():
        write_atomically(folder / _METRICS, "".join(line.to_json() + "\n" for line in lines))
    return lines


def last_round(folder: Path) -> int:
    """After which round something was shown last."""
    return max((line.round for line in _whole_lines(folder)), default=0)


def _whole_lines(folder: Path) -> list[Line]:
    """The lines of metrics.jsonl up to one that is torn."""
    path, lines = folder / _METRICS, list[Line]()
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(Line(**json.loads(text)))
        except (json.JSONDecodeError, TypeError):
            break
    return lines


def write_diagnostics(folder: Path, facts: dict[str, Any]) -> None:
    """A line of what is not private, in a folder that says so."""
    private = folder / "diagnostics-not-private"
    private.mkdir(mode=0o700, exist_ok=True)
    with (private / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(facts) + "\n")


def load(folder: str | Path, module: nn.Module | None = None) -> nn.Module:
    """The model of a run, as an ordinary module; `module.guarantee` is what was proven, `module.run` is run.json.

    A run from Python does not know how its module was made, so it needs one like it: a copy gets the run's parameters.
    """
    folder = Path(folder)
    summary = read_summary(folder)
    request = Request.from_toml(folder / "run.toml")
    if module is None and not request.model.name:
        raise BadValue(
            f"{folder}: its {summary['model']} was made in Python, and cannot be made again from here. Give one like it: "
            f"load({str(folder)!r}, module)."
        )
    shape, outputs = tuple(summary["input_shape"]), summary["outputs"]
    found = model_of(request.model, shape, outputs) if module is None else copy.deepcopy(module)
    try:
        found.load_state_dict(load_file(folder / "params.safetensors"))
    except Exception as error:
        raise DataError(f"{folder}/params.safetensors does not fit the model of the run: {error}") from error
    found.guarantee = summary["guarantee"]
    found.run = summary  # type: ignore[assignment]
    return found.eval()


def even_times(paths: Iterable[Path]) -> None:
    """Give files one time: apart, their times tell how long rounds took, which grows with secret cohorts."""
    now = time.time_ns()
    for path in paths:
        os.utime(path, ns=(now, now), follow_symlinks=False)


def released_files(folder: Path) -> list[Path]:
    """What a run leaves in its folder to be shown; other files there are not the run's."""
    named = (folder / name for name in _RELEASED)
    return [path for path in (*named, *(folder / RELEASES).glob("*"), folder / RELEASES) if path.exists()]
