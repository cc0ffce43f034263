"""Pages and pictures as files. What Sfumato made it may make again; any other file is left alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sfumato.errors import BadValue, DataError
from sfumato.report.comparison import comparison
from sfumato.report.history import (
    accuracy_against_epsilon,
    accuracy_by_round,
    epsilon_by_round,
    loss_by_round,
    tradeoff,
)
from sfumato.report.page import MARK, one_run
from sfumato.report.pictures import MAKER, png
from sfumato.report.read import read_runs

_HEAD = 1000  # both marks stand at the beginning of a file
_PAGE_MARK, _PICTURE_MARK = MARK.encode(), b"Software\0" + MAKER.encode()


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Write the page of one run, or the comparison of several, to `out`; gives back `out`."""
    runs = read_runs(folders)
    _check(out, _PAGE_MARK)
    page = one_run(runs[0]) if len(runs) == 1 else comparison(runs)
    _write(out, page.encode("utf-8"))
    return out


def write_page(folder: Path) -> Path:
    """Write a finished run's page into its folder."""
    return write_report([folder], folder / "report.html")


def write_pictures(folders: Sequence[Path], out: Path) -> list[Path]:
    """Write the same curves as PNG files into the folder `out`; gives back the files. Empty curves have none."""
    runs = read_runs(folders)
    second = epsilon_by_round if len(runs) == 1 else accuracy_against_epsilon
    plots = [plot for plot in (make(runs) for make in (accuracy_by_round, loss_by_round, second, tradeoff)) if plot]
    paths = [out / f"{plot.name}.png" for plot in plots]
    for path in paths:
        _check(path, _PICTURE_MARK)
    for plot, path in zip(plots, paths, strict=True):
        _write(path, png(plot))
    return paths


def _check(path: Path, mark: bytes) -> None:
    """Refuse to write over what is not ours."""
    if path.is_dir():
        raise BadValue(f"{path} is a folder, so nothing can be written there. Name a file.")
    try:
        with path.open("rb") as file:
            ours = mark in file.read(_HEAD)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}. Choose another place.") from None
    if not ours:
        raise BadValue(f"{path} exists and was not made by sfumato report, so it is kept. Choose another name.")


def _write(path: Path, content: bytes) -> None:
    """The file has the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DataError(f"{path} cannot be written: {error.strerror}. Choose another place.") from None
