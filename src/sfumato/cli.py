"""The command line. Nothing heavy is loaded before a command needs it, and every mistake ends in one clear sentence.

This module itself loads next to nothing, so that Ctrl-C is answered while the commands are still being loaded.
"""

from __future__ import annotations

import difflib
import os
import sys
from typing import Any

from sfumato.errors import FULL, BudgetExceeded, SfumatoError, refused_by_system
from sfumato.private_log import unforeseen, words_of
from sfumato.version import __version__

# Threads of torch that wait for one another sleep, unless somebody has chosen: where another program takes a core, those that spin
# instead make a step hundreds of times slower. It is read once, when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> None:
    """Run the command line; exit status 2 for bad input, 3 for a spent budget, 130 for Ctrl-C."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """The exit status of one command."""
    if words == ["--version"]:
        print(f"sfumato {__version__}")
        return 0
    try:
        import typer

        from sfumato.commands.app import app
    except KeyboardInterrupt:
        return _interrupted()
    try:
        status = app(words, prog_name="sfumato", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except SfumatoError as error:
        _say(f"sfumato: {words_of(error)}")
        return 3 if isinstance(error, BudgetExceeded) else 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            return _unexpected(error)
        _say(f"sfumato: {refused_by_system(error)}")
        return 2
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _misspelt(error, words)
        return _unexpected(error)


def _interrupted() -> int:
    _say("interrupted")
    return 130


def _misspelt(error: Any, words: list[str]) -> int:
    """A mistake in the command's words: what is wrong, the value, what to do."""
    if not words:  # no mistake: the help screen, which typer has shown already unless it is the message
        _say(error.format_message())
        return int(error.exit_code)
    context, option, parameter = (getattr(error, name, None) for name in ("ctx", "option_name", "param"))
    message = str(error.format_message())
    if hasattr(error, "possibilities"):
        known = [flag for one in (context.command.params if context else ()) for flag in one.opts]
        message = f"there is no option {option}." + _near(str(option).replace("_", "-"), known)
    elif message.startswith("No such command") and (recipe := _recipe_among(words)):
        message = f"there is no command {recipe!r}. Did you mean 'sfumato train {recipe}'?"
    elif parameter is not None and error.message:
        message = f"{_as_given(parameter.opts, words)}: {error.message.partition(',')[0].rstrip('.').lower()}."
    ended = message if message.endswith((".", "?")) else message + "."
    where = f" See {context.command_path} --help." if context else ""
    _say(f"sfumato: {ended[0].lower()}{ended[1:]}{where}")
    return int(error.exit_code)


def _near(option: str, known: list[str]) -> str:
    """The option that begins so, if there is one; else the most similar."""
    begin = sorted(flag for flag in known if flag.startswith(option))
    bare = {flag.lstrip("-"): flag for flag in known}  # all are alike in their dashes
    near = begin[:1] or [bare[name] for name in difflib.get_close_matches(option.lstrip("-"), bare, n=1)]
    return f" Did you mean '{near[0]}'?" if near else ""


def _recipe_among(words: list[str]) -> str | None:
    """The first word, if it is a recipe, which `train` trains."""
    from sfumato.recipes import RECIPES

    return words[0] if words[0] in RECIPES else None


def _as_given(flags: list[str], words: list[str]) -> str:
    """An option as it was typed, with its value."""
    for place, word in enumerate(words):
        if word.partition("=")[0] in flags:
            return word if "=" in word else " ".join(words[place : place + 2])
    return flags[0]


def _unexpected(error: Exception) -> int:
    _say(f"sfumato: {unforeseen(error)} Report it without the data.")
    return 1


def _say(words: str) -> None:
    from sfumato.commands.paragraphs import print_lines

    print_lines(words, err=True)
