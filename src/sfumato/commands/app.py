"""All commands as one typer application."""

from __future__ import annotations

import shutil
from typing import Annotated

import typer

from sfumato.commands.account import account
from sfumato.commands.audit import audit
from sfumato.commands.curve import curve
from sfumato.commands.deploy import deploy
from sfumato.commands.evaluate import evaluate
from sfumato.commands.explain import explain
from sfumato.commands.ledger import ledger
from sfumato.commands.node import node
from sfumato.commands.plan import plan
from sfumato.commands.recipes import recipes
from sfumato.commands.report import report
from sfumato.commands.reproduce import reproduce
from sfumato.commands.server import server
from sfumato.commands.train import train
from sfumato.commands.tune import tune
from sfumato.commands.ui import ui
from sfumato.version import __version__

_COLUMNS = shutil.get_terminal_size().columns
_NARROW = _COLUMNS < 80  # framed help would cut words off
_WIDTH = {"terminal_width": _COLUMNS - 2} if _NARROW else None

app = typer.Typer(
    name="sfumato",
    help="Federated learning with differential privacy that prints only proven guarantees.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None if _NARROW else "rich",
)
for command in (
    train,
    tune,
    recipes,
    explain,
    evaluate,
    audit,
    report,
    account,
    plan,
    curve,
    ledger,
    reproduce,
    deploy,
    server,
    ui,
):
    app.command(command.__name__, context_settings=_WIDTH)(command)
app.add_typer(node, context_settings=_WIDTH)
for registered in node.registered_commands:
    registered.context_settings = _WIDTH


@app.callback()
def options(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    """Federated learning with differential privacy that prints only proven guarantees."""
    if version:
        typer.echo(f"sfumato {__version__}")
        raise typer.Exit
