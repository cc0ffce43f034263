"""Run a table: cells that are known are read, the others are computed and written at once, and then the table is written."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from sfumato.engine.checkpoint import make_folder, write_atomically
from sfumato.report.curves import Plot
from sfumato.report.pictures import png
from sfumato.report.words import duration
from sfumato.reproduce.table import Cell, Done, Row, Table, groups

_SECONDS_BETWEEN_WRITES = 30.0  # drawing takes a second, and some cells no longer


def run_table(table: Table, folder: Path, tell: Callable[[str], None], jobs: int = 1) -> list[Done]:
    """Every cell of the table; a run that was interrupted goes on with the cells that are missing.

    With several `jobs`, as many processes share the cells that are missing; a cell's result depends on nothing but itself.
    """
    make_folder(folder / "cells")
    cells = {cell.name: cell for cell in table.cells}
    known = {name: found for name, cell in cells.items() if (found := _known(folder, cell)) is not None}
    missing = [cell for name, cell in cells.items() if name not in known]
    written = -_SECONDS_BETWEEN_WRITES
    for new in _computed(missing, folder, min(jobs, len(missing)), tell):
        known[new.cell.name] = new
        if time.monotonic() - written > _SECONDS_BETWEEN_WRITES:
            write(table, [known[cell.name] for cell in table.cells if cell.name in known], folder)
            written = time.monotonic()
    done = [known[cell.name] for cell in table.cells]
    write(table, done, folder)
    return done


def _path(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.name}.json"


def _computed(cells: Sequence[Cell], folder: Path, jobs: int, tell: Callable[[str], None]) -> Iterator[Done]:
    """The cells' results, in the order in which they are ready."""
    if jobs < 2:
        for number, cell in enumerate(cells, start=1):
            tell(f"cell {number}/{len(cells)}: {cell.row}, seed {cell.seed}")
            yield (done := _compute(cell, _path(folder, cell)))
            tell(f"  {duration(done.seconds)}")
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    with ProcessPoolExecutor(jobs, context, initializer=_start_job, initargs=(threads,)) as pool:
        try:
            ready = as_completed([pool.submit(_compute, cell, _path(folder, cell)) for cell in cells])
            for number, done in enumerate((future.result() for future in ready), start=1):
                tell(f"{number}/{len(cells)}: {done.cell.row}, seed {done.cell.seed}: {duration(done.seconds)}")
                yield done
        except BaseException:  # do not wait for what was begun: its cells are computed again
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise


def _start_job(threads: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its jobs
    torch.set_num_threads(threads)


def _compute(cell: Cell, path: Path) -> Done:
    if (known := _read(path, cell)) is not None:  # another process that works on this table was faster
        return known
    started = time.perf_counter()
    result = cell.work.function(cell.settings, cell.seed)
    done = Done(cell, result, time.perf_counter() - started)
    write_atomically(path, json.dumps(_kept(done), indent=1) + "\n")
    return done


def _known(folder: Path, cell: Cell) -> Done | None:
    """The cell, if this table or another one beside it has computed it."""
    own = _path(folder, cell)
    if (found := _read(own, cell)) is not None:
        return found
    for other in sorted(folder.parent.glob(f"*/cells/*-{cell.digest}.json")):
        if other != own and (found := _read(other, cell)) is not None:
            write_atomically(own, other.read_text())
            return found
    return None


def _read(path: Path, cell: Cell) -> Done | None:
    """A cell that was computed before; one that cannot be read is computed again."""
    try:
        found = json.loads(path.read_text())
        return Done(cell, found["result"], found["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(table: Table, done: list[Done], folder: Path) -> None:
    """table.md, table.json and the pictures, from the cells that there are."""
    pictures = {plot.name: png(plot) if isinstance(plot, Plot) else plot.png() for plot in table.plots(done)}
    for name, content in pictures.items():
        write_atomically(folder / f"{name}.png", content)
    write_atomically(folder / "table.md", as_markdown(table, done, list(pictures)))
    write_atomically(folder / "table.json", json.dumps(_as_json(table, done), indent=1) + "\n")


def as_markdown(table: Table, done: list[Done], pictures: Sequence[str] = ()) -> str:
    """The table for people."""
    missing = len(table.cells) - len(done)
    seeds = sorted({one.cell.seed for one in done})
    lines = [f"# {table.title}", "", f"{table.paper}.", ""]
    lines += [f"Scale: {table.scale}. {table.scaled}".strip(), "", *aligned(table.rows(done)), ""]
    lines += [f"Not finished: {missing} of {len(table.cells)} cells are missing.", ""] if missing else []
    lines += [f"Seeds: {', '.join(map(str, seeds))}. Time: {duration(sum(one.seconds for one in done))}.", ""]
    findings = [f"- {finding}" for finding in _findings(table, done)]
    lines += ["Found:", "", *findings, ""] if findings else []
    lines += [f"- {note}" for note in table.notes] + [""]
    lines += ["Settings:", ""]
    lines += [f"- {group[0].cell.row}: {_words(group)}" for group in groups(done)] + [""]
    lines += [f"![{name}]({name}.png)\n" for name in pictures]
    return "\n".join(lines)


def aligned(rows: list[Row]) -> list[str]:
    """Rows as a Markdown table whose columns also stand under each other in a terminal."""
    if not rows:
        return []
    names = list(dict.fromkeys(name for row in rows for name in row))
    grid = [names, *([row.get(name, "") for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    padded = ([text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in grid)
    head, *lines = (f"| {' | '.join(line)} |" for line in padded)
    return [head, f"|{'|'.join('-' * (width + 2) for width in widths)}|", *lines]


def _words(group: list[Done]) -> str:
    """The settings of a row; where its cells differ, all of their values."""
    found: dict[str, list[str]] = {}
    for one in (one for one in group if one.cell.work == group[-1].cell.work):
        for name, value in one.cell.settings.items():
            if value is not None and str(value) not in found.setdefault(name, []):
                found[name].append(str(value))
    return ", ".join(f"{name} {' or '.join(values)}" for name, values in found.items() if values)


def _findings(table: Table, done: list[Done]) -> list[str]:
    """What the whole table says, once it is whole."""
    return list(table.findings(done)) if len(done) == len(table.cells) else []


def _as_json(table: Table, done: list[Done]) -> dict[str, Any]:
    return {
        "schema": 1,
        **{name: getattr(table, name) for name in ("name", "title", "paper", "scale", "scaled", "notes")},
        "findings": _findings(table, done),
        "missing": len(table.cells) - len(done),
        "rows": table.rows(done),
        "cells": [_kept(one, paper=dict(one.cell.paper)) for one in done],
    }


def _kept(done: Done, **more: Any) -> dict[str, Any]:
    """A cell as it is written."""
    cell = {"row": done.cell.row, "settings": dict(done.cell.settings), "seed": done.cell.seed}
    return {**cell, **more, "seconds": done.seconds, "result": done.result}
