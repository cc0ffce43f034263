"""The command line. Nothing heavy is loaded before a command needs it, and every mistake ends in one clear sentence."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from sfumato.commands.account import account
from sfumato.commands.curve import curve
from sfumato.commands.evaluate import evaluate
from sfumato.commands.ledger import ledger
from sfumato.commands.plan import plan
from sfumato.commands.recipes import explain, recipes
from sfumato.commands.report import report
from sfumato.commands.train import train
from sfumato.errors import BudgetExceeded, SfumatoError
from sfumato.version import __version__

app = typer.Typer(
    name="sfumato",
    help="Differentially private federated learning that prints only guarantees that are true.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (train, recipes, explain, evaluate, report, account, plan, curve, ledger):
    app.command(command.__name__)(command)


@app.callback()
def options(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    """Differentially private federated learning that prints only guarantees that are true."""
    if version:
        typer.echo(f"sfumato {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; exit status 2 for bad input, 3 for a spent budget, 130 for Ctrl-C."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """The exit status of one command."""
    if words == ["--version"]:
        typer.echo(f"sfumato {__version__}")
        return 0
    try:
        status = app(words, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("interrupted", err=True)
        return 130
    except SfumatoError as error:
        typer.echo(f"sfumato: {error}", err=True)
        return 3 if isinstance(error, BudgetExceeded) else 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _unexpected(error)


def _unexpected(error: Exception) -> int:
    if hasattr(error, "show") and hasattr(error, "exit_code"):  # a mistake in the command's words
        error.show()
        return int(error.exit_code)
    if os.environ.get("SFUMATO_DEBUG"):
        raise error
    typer.echo(
        f"sfumato: something went wrong that we did not foresee: {type(error).__name__}: {error}. "
        "Set SFUMATO_DEBUG=1 to see where, and tell us.",
        err=True,
    )
    return 1
