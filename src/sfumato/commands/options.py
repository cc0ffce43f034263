"""The options of `sfumato train`: keys of run.toml as `Request` declares them, arguments of recipes, and where a run goes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

import typer

from sfumato.recipes import RECIPES
from sfumato.recipes.sentences import SENTENCES
from sfumato.run.request import DataRequest, ModelRequest, Request


@dataclass(frozen=True)
class Key:
    """An option that stands for a key of run.toml."""

    path: str
    kind: type
    help: str
    shares_out: bool


def _keys() -> Iterator[tuple[str, Key]]:
    for table, owner in (("data.", DataRequest), ("model.", ModelRequest), ("", Request)):
        kinds = get_type_hints(owner)
        for part in dataclasses.fields(owner):
            if "help" in part.metadata:
                kind = next(iter(get_args(kinds[part.name])), kinds[part.name])  # X of X | None
                key = Key(table + part.name, kind, part.metadata["help"], part.metadata["shares_out"])
                yield part.metadata["flag"] or part.name, key


KEYS = dict(_keys())
# Of a table, under [data.columns] in run.toml.
COLUMNS = {
    "client_column": ("Of a table: the column that names a row's client.", "NAME"),
    "target_column": ("Of a table: the column that a model learns to tell; several are divided by commas.", "NAME"),
    "columns": (
        "Of a table: a TOML file that declares its columns: classes, categories, scale, fill, features.",
        "FILE",
    ),
}
_METAVARS = {int: "N", float: "X", bool: "", str: "TEXT"}


def flag(name: str) -> str:
    """An option as it is typed."""
    return "--" + name.replace("_", "-")


def option(name: str, kind: Any, text: str, panel: str, metavar: str | None = None) -> inspect.Parameter:
    """An option of the command line."""
    shown = _METAVARS.get(kind, "TEXT") if metavar is None else metavar
    declared = typer.Option(flag(name), help=text, metavar=shown, rich_help_panel=panel, show_default=False)
    annotation = Annotated[kind | None, declared]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _in_words(defaults: dict[str, list[str]]) -> str:
    """The default that most recipes have, and who has another; nothing is said of one that is empty, or off.

    >>> _in_words({"0.5": ["dp-fedavg", "fedavg"], "0.1": ["nbafl"]}), _in_words({"": ["dp-fedavg"]})
    (' Default: 0.5 (nbafl: 0.1).', '')
    """
    usual, *others = sorted(defaults, key=lambda value: -len(defaults[value]))
    if usual == "False":
        return ""
    own = "; ".join(f"{', '.join(defaults[value])}: {value}" for value in others if value)
    shown = (f" Default: {usual}" + (f" ({own})" if own else "")) if usual else f" Default: {own}" if own else ""
    return shown and f"{shown}."


def recipe_options() -> list[inspect.Parameter]:
    """The arguments of every recipe as options, each with its sentence and its defaults."""
    seen: dict[str, tuple[Any, dict[str, list[str]]]] = {}
    for recipe in RECIPES.values():
        for name, parameter in recipe.options.items():
            defaults = seen.setdefault(name, (parameter.annotation, {}))[1]
            defaults.setdefault(str(parameter.default), []).append(recipe.name)
    return [
        option(name, kind, SENTENCES[name] + _in_words(defaults), "Recipe") for name, (kind, defaults) in seen.items()
    ]


def signature() -> inspect.Signature:
    """The options of `train`: keys of run.toml, and the arguments of every recipe."""
    text = f"{', '.join(RECIPES)}; see sfumato recipes. By default dp-fedavg."
    named = Annotated[str | None, typer.Argument(help=text, metavar="RECIPE", show_default=False)]
    parameters = [inspect.Parameter("recipe", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=named)]
    parameters += [option(name, key.kind, key.help, "What to train") for name, key in KEYS.items()]
    parameters += [option(name, str, text, "What to train", metavar) for name, (text, metavar) in COLUMNS.items()]
    parameters += recipe_options()
    panel = "Run"
    parameters += [
        option("budgets", str, "A file with each client's own (epsilon, delta), in place of --epsilon.", panel, "FILE"),
        option("out", str, "Folder of the run; an existing one is never overwritten.", panel, "FOLDER"),
        option("config", str, "A run.toml to start from.", panel, "FILE"),
        option("set", list[str], "Any key of run.toml, e.g. rounds=60 or options.lr=0.1.", panel, "KEY=VALUE"),
        option("resume", str, "Folder of a run to go on with; a finished one with more --rounds.", panel, "FOLDER"),
        option("auto", bool, "Choose features and settings from public facts alone; what you give stays.", panel),
        option("seconds", float, "With --auto: about how long to train. Default: 10.", panel),
        option("ray", str, "Train clients on a Ray cluster: local, or HOST:PORT of one that runs.", panel, "ADDRESS"),
        option("workers", int, "With --ray: processes of one thread each. Default: as many as CPUs.", panel),
        option("shards", int, "With --ray: parts of a cohort, fixed for the run. Default: as many as workers.", panel),
        option("quiet", bool, "Print nothing but errors.", panel),
        option("json", bool, "Print run.json and nothing else.", panel),
    ]
    return inspect.Signature(parameters)
