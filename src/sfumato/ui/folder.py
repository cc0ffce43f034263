"""The folder of runs: what is in it, and the few files of it that the page may read.

A name that is asked for is looked up among the runs that a walk has found, and never becomes a path; so nothing outside the
folder can be named. The walk follows no link and enters no run, and of a run only the files below are opened, each a
plain file of the run's own folder: never secrets, parameters, diagnostics, or what attacks on clients' records found.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sfumato.errors import BadValue, DataError
from sfumato.run.lock import Lock

LEDGER = "ledger.sqlite"
_READ = ("run.toml", "run.json", "metrics.jsonl", "audit.json", Lock.NAME, LEDGER, f"{LEDGER}-wal", f"{LEDGER}-shm")
_BEGUN = (Lock.NAME, "run.json", "metrics.jsonl")  # beside run.toml, which a config is too
_DEPTH = 3


@dataclass(frozen=True)
class Runs:
    """The runs under a folder, each known by its path from there. `ledgers` are shared ones that the user has named."""

    root: Path
    ledgers: tuple[Path, ...] = ()

    @staticmethod
    def under(folder: Path | None, ledgers: tuple[Path, ...] = ()) -> Runs:
        """Those under a folder; by default under `runs`, which need not be there yet."""
        if folder is not None and not folder.is_dir():
            raise BadValue(f"{folder}: there is no such folder. Give the one that holds your runs, e.g. runs.")
        root = (folder or Path("runs")).resolve()
        if _is_run(root):
            raise BadValue(f"{folder} is a run itself. Give the folder that holds it: sfumato ui {root.parent}")
        for path in ledgers:
            if not path.is_file():
                raise BadValue(f"--ledger {path}: there is no such file. Give what --ledger of sfumato train named.")
        return Runs(root, tuple(path.resolve() for path in ledgers))

    def all(self) -> dict[str, Path]:
        """Every run by its name, the one that was written to last first."""
        found = sorted(_walk(self.root, _DEPTH), key=_written, reverse=True)
        return {path.relative_to(self.root).as_posix(): path for path in found}

    def find(self, name: str) -> Path:
        """The folder of a run; refused if there is none, or if what would be read of it is not its own."""
        path = self.all().get(name)
        if path is None:
            raise DataError(f"there is no run {name!r} in {self.root}.")
        return checked(path)


def checked(run: Path) -> Path:
    """The folder of a run; refused if what would be read of it is not its own."""
    for file in _READ:
        check_own(run / file)
    return run


def check_own(path: Path) -> None:
    """Refuse what is no plain file: a link could lead anywhere."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise DataError(f"{path.name} of the run {path.parent.name} is a link or no plain file, so it is not read.")


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        inside = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for entry in inside:
        path = Path(entry.path)
        if entry.name.startswith(".") or "not-private" in entry.name:
            continue
        if _is_run(path):
            yield path
        elif depth > 1:
            yield from _walk(path, depth - 1)


def _is_run(folder: Path) -> bool:
    return os.path.lexists(folder / "run.toml") and any(os.path.lexists(folder / name) for name in _BEGUN)


def _written(folder: Path) -> float:
    files = (folder / name for name in ("metrics.jsonl", "run.toml"))
    return max((file.lstat().st_mtime for file in files if os.path.lexists(file)), default=0.0)
