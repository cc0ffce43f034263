"""The command line. Nothing heavy is loaded before a command needs it, and every mistake ends in one clear sentence."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from typing import Annotated, Any

import typer

from sfumato.commands.account import account
from sfumato.commands.curve import curve
from sfumato.commands.evaluate import evaluate
from sfumato.commands.ledger import ledger
from sfumato.commands.plan import plan
from sfumato.commands.recipes import explain, recipes
from sfumato.commands.report import report
from sfumato.commands.reproduce import reproduce
from sfumato.commands.train import train
from sfumato.errors import BudgetExceeded, SfumatoError
from sfumato.version import __version__

_COLUMNS = shutil.get_terminal_size().columns
_NARROW = _COLUMNS < 60  # framed help would cut words off

app = typer.Typer(
    name="sfumato",
    help="Differentially private federated learning that prints only guarantees that are true.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None if _NARROW else "rich",
)
for command in (train, recipes, explain, evaluate, report, account, plan, curve, ledger, reproduce):
    app.command(command.__name__, context_settings={"terminal_width": _COLUMNS - 2} if _NARROW else None)(command)


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
        status = app(words, prog_name="sfumato", standalone_mode=False)
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
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _misspelt(error, words)
        return _unexpected(error)


def _misspelt(error: Any, words: list[str]) -> int:
    """A mistake in the command's words: what is wrong, the value, what to do."""
    if not words:  # no mistake: the help screen, which typer has shown already unless it is the message
        typer.echo(error.format_message(), err=True)
        return int(error.exit_code)
    context, option, parameter = (getattr(error, name, None) for name in ("ctx", "option_name", "param"))
    message = str(error.format_message())
    if hasattr(error, "possibilities"):
        known = [flag for one in (context.command.params if context else ()) for flag in one.opts]
        near = difflib.get_close_matches(str(option), known, n=1)
        message = f"there is no option {option}." + (f" Did you mean '{near[0]}'?" if near else "")
    elif parameter is not None and error.message:
        message = f"{_as_given(parameter.opts, words)}: {error.message.partition(',')[0].rstrip('.').lower()}."
    ended = message if message.endswith((".", "?")) else message + "."
    where = f" See {context.command_path} --help." if context else ""
    typer.echo(f"sfumato: {ended[0].lower()}{ended[1:]}{where}", err=True)
    return int(error.exit_code)


def _as_given(flags: list[str], words: list[str]) -> str:
    """An option as it was typed, with its value."""
    for place, word in enumerate(words):
        if word.partition("=")[0] in flags:
            return word if "=" in word else " ".join(words[place : place + 2])
    return flags[0]


def _unexpected(error: Exception) -> int:
    if os.environ.get("SFUMATO_DEBUG"):
        raise error
    typer.echo(
        f"sfumato: something went wrong that we did not foresee: {type(error).__name__}: {error}. "
        "Set SFUMATO_DEBUG=1 to see where, and tell us.",
        err=True,
    )
    return 1
