"""`sfumato report RUN...`: the page of a run, or of several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders; several are compared.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Default: report.html in the run, comparison.html here for several."),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also save the curves there, as PNG files.")
    ] = None,
) -> None:
    """Write a self-contained page about a run: its guarantee, its curves, its proof. Several runs are compared."""
    from sfumato.report import write_pictures, write_report

    several = len({run.resolve() for run in runs}) > 1
    page = write_report(runs, out or (Path("comparison.html") if several else runs[0] / "report.html"))
    typer.echo(str(page))
    for picture in write_pictures(runs, pictures) if pictures else ():
        typer.echo(str(picture))
