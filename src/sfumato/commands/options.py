"""The options of `sfumato train`: keys of run.toml as `Request` declares them, arguments of recipes, and where a run goes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

import typer

from sfumato.recipes import RECIPES
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
_RECIPE_HELP = {
    "sample": "poisson:RATE, fixed:SIZE or everyone.",
    "relation": "add_remove, replace or zero_out; else the sampler's own.",
    "batch": "Records of a local step (dp-sgd: of a round): fixed:SIZE, poisson:RATE or everyone.",
    "records": "The fewest records that a client has: declared and public. dp-sgd: how many there are; of data known by name they "
    "are counted.",
    "optimizer": "Of the clients, or of dp-sgd: sgd, momentum or adam.",
    "helper_weight": "Weight of the global model in a client's own; 1 keeps no own models.",
    "clip": "L2 norm that a whole update (dp-sgd, prifedsync: a record's gradient) is clipped to; udp-fl: in the norm of its law, "
    "0 is 1 under L2 and 4 under L1.",
    "law": "Of the noise: gaussian or laplace-l2 (L2 clip), laplace or staircase (L1 clip); unproven: laplace-as-published, "
    "staircase-as-published.",
    "aggregate": "mean, median, trimmed, geometric; on --public-records: mode-connectivity, or its control mean-then-public.",
    "shuffle": "Somebody permutes the messages before the server sees them.",
    "scaffold": "Control variates against drift (SCAFFOLD, option II).",
    "noise_multiplier": "Standard deviation of the noise over the clip norm; --epsilon finds it for you.",
    "queries": "How many public records clients vote on in a round.",
    "classes": "How many classes there are; else as many as the data have.",
    "k": "How many of its nearest records a client votes with.",
    "stddev": "Standard deviation of the noise in votes (pate-fl, knn-fl); --epsilon finds it for you.",
    "stddev_of": "Whose votes --stddev counts: clients, or neighbours, of which each client has k.",
    "shares": "Clients add shares of the noise, in a (simulated) secure sum, so that it holds against the server.",
    "teacher": "The model of a client that votes.",
    "adapt": "Bring teachers closer to the public records: none, coral or adversarial.",
    "attributes": "Clients vote for up to so many attributes, instead of for one class.",
    "student": "How the server learns from votes: ridge (one linear layer, closed form), fit or vat.",
    "order": "What is asked in later rounds: in-order, balanced or uncertain.",
    "weight_cap": "Weigh clients by min(records, cap) / cap; 0 weighs all the same.",
    "lr": "Learning rate of the clients, or of dp-sgd.",
    "epochs": "Local passes over a client's records.",
    "steps": "Local steps instead of epochs, if not 0.",
    "batch_size": "Records in a local step.",
    "momentum": "Momentum of the clients, or of dp-sgd's optimizer momentum.",
    "weight_decay": "Weight decay of the clients, or of dp-sgd.",
    "micro_batch": "Records in work at once, which changes speed and no result; 0: as many as suit the model.",
    "lr_decay": "Factor on the learning rate after each round.",
    "proximal": "Strength of the pull to the global model (FedProx).",
    "server_optimizer": "sgd, momentum or adam.",
    "server_lr": "Learning rate of the server.",
    "average": "Report an average of iterates, with this decay per round; 0 reports the last.",
}
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


def signature() -> inspect.Signature:
    """The options of `train`: keys of run.toml, and the arguments of every recipe."""
    text = f"{', '.join(RECIPES)}; see sfumato recipes. By default dp-fedavg."
    named = Annotated[str | None, typer.Argument(help=text, metavar="RECIPE", show_default=False)]
    parameters = [inspect.Parameter("recipe", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=named)]
    parameters += [option(name, key.kind, key.help, "What to train") for name, key in KEYS.items()]
    parameters += [option(name, str, text, "What to train", metavar) for name, (text, metavar) in COLUMNS.items()]
    seen: dict[str, tuple[Any, list[str]]] = {}
    for recipe in RECIPES.values():
        for name, parameter in recipe.options.items():
            seen.setdefault(name, (parameter.annotation, []))[1].append(f"{recipe.name}: {parameter.default}")
    for name, (kind, defaults) in seen.items():
        values = sorted({default.partition(": ")[2] for default in defaults})
        shown = values[0] if len(values) == 1 else ", ".join(defaults)
        text = _RECIPE_HELP.get(name, f"{name.replace('_', ' ').capitalize()}.") + (
            f" Default: {shown}." if shown else ""
        )
        parameters.append(option(name, kind, text, "Recipe"))
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
