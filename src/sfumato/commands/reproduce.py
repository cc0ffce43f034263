"""`sfumato reproduce [NAME]`: a paper's table, run again, with its numbers beside ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sfumato.commands.paragraphs import print_lines
from sfumato.errors import BadValue
from sfumato.reproduce import TABLES, make


def reproduce(
    name: Annotated[str, typer.Argument(help="A table's name; without one, the list.", show_default=False)] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Default: reproduced/NAME. Cells that are there, or in a folder beside it, are not run again.",
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="The paper's own setting: hours.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Seconds, on small data: shows only that it runs.")] = False,
    jobs: Annotated[
        int, typer.Option(min=0, help="Processes that share the cells; 0 is one for each core, and one for --quick.")
    ] = 0,
) -> None:
    """Run a paper's table again: its numbers and ours side by side, with settings, seeds, spread, time and pictures.

    By default a table is scaled to at most 45 minutes on two cores, and says how.
    """
    if not name:
        width = max(map(len, TABLES))
        for known, summary in TABLES.items():
            print_lines(f"{known:<{width}}  {summary}")
        return
    if full and quick:
        raise BadValue("--full and --quick exclude each other. Give one of them, or neither.")
    scale = "full" if full else "quick" if quick else "default"
    table = make(name, scale)

    from sfumato.reproduce.run import as_markdown, run_table

    folder = out or Path("reproduced") / (name if scale == "default" else f"{name}-{scale}")
    if table.scaled:
        print_lines(f"{scale}: {table.scaled}", err=True)
    jobs = jobs or (1 if quick else os.cpu_count() or 1)
    done = run_table(table, folder, lambda line: print_lines(line, err=True), jobs)
    typer.echo(as_markdown(table, done))
    typer.echo(f"written to {folder}: table.md, table.json and pictures")
