"""`sfumato ui`: a page on this machine, in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def ui(
    folder: Annotated[Path | None, typer.Argument(help="The folder that holds runs. Default: runs.")] = None,
    port: Annotated[
        int, typer.Option(help="On 127.0.0.1, the only address that it has; 0 for any that is free.")
    ] = 8642,
    ledger: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A shared ledger to show too; several with several.")
    ] = None,
) -> None:
    """Open a page on this machine: plan a budget with sliders, watch a run as it trains, compare runs, read ledgers and audits.

    It shows released values only, reads and never writes, and fetches nothing. Ctrl-C ends it. It needs the extra 'ui'.
    """
    from sfumato.ui import needs_server

    needs_server()
    from sfumato.ui.folder import Runs
    from sfumato.ui.serve import serve

    serve(Runs.under(folder, tuple(ledger or ())), port, lambda address: typer.echo(f"open {address}\nCtrl-C ends it"))
