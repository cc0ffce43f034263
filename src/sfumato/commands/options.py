"""The options of `sfumato train`: keys of run.toml, arguments of recipes, and where a run goes."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from sfumato.recipes import RECIPES

# Options that stand for a key of run.toml: name -> (key, type, help).
KEYS: dict[str, tuple[str, type, str]] = {
    "data": (
        "data.name",
        str,
        "digits, mnist, fashion-mnist, emnist-letters, cifar10, cifar100, svhn, svhn-extra, shakespeare, a folder of client "
        "files, or module:function.",
    ),
    "data_dir": ("data.folder", str, "Where the data sets lie; else SFUMATO_DATA, else the cache."),
    "clients": ("data.clients", int, "How many clients there are: declared and public."),
    "records_per_client": (
        "data.records_per_client",
        int,
        "Records each client gets (natural: at most); 0 shares out all.",
    ),
    "split": (
        "data.split",
        str,
        "iid, shards:N, dirichlet:ALPHA, dirichlet-classes:ALPHA, or natural (Shakespeare's roles).",
    ),
    "split_seed": ("data.split_seed", int, "Public seed of the split."),
    "test_fraction": ("data.test_fraction", float, "Part of each client's records kept to test its own model."),
    "task": ("data.task", str, "classification, multi-label, next-character or regression."),
    "outputs": ("data.outputs", int, "Outputs of the model, for your own data."),
    "model": (
        "model.name",
        str,
        "logistic, mlp, cnn-mnist, cnn-emnist, cnn-cifar, resnet-18, char-lstm, char-lstm:UNITS or module:function.",
    ),
    "model_seed": ("model.seed", int, "Public seed of the initial weights."),
    "rounds": ("rounds", int, "Rounds to train."),
    "epsilon": ("epsilon", float, "Budget: finds the noise before training, and stops before passing it."),
    "delta": ("delta", float, "Else one over the number of clients (of records, where those are hidden) to the 1.1."),
    "seed": ("seed", int, "For simulations: anybody who knows it can undo the noise."),
    "evaluate_every": ("evaluate_every", int, "Rounds between evaluations on public test data."),
    "device": ("device", str, "cpu, or cuda where there is one (not tested here)."),
    "ledger": ("ledger", str, "A ledger shared by all runs on this population; its budget stops them."),
    "force_ledger": ("force_ledger", bool, "Let the shared ledger take a seeded, unproven or non-private run."),
    "diagnostics": (
        "diagnostics",
        bool,
        "Write norms, cohort sizes and personal accuracy to a folder of their own: NOT private.",
    ),
    "unproven": ("unproven", bool, "Train what cannot be proven; no epsilon is printed."),
}
_RECIPE_HELP = {
    "sample": "poisson:RATE, fixed:SIZE or everyone.",
    "relation": "add_remove, replace or zero_out; else the sampler's own.",
    "batch": "Records of a local step: fixed:SIZE, poisson:RATE or everyone.",
    "records": "The fewest records that a client has: declared and public.",
    "optimizer": "Of the clients: sgd, momentum or adam.",
    "helper_weight": "Weight of the global model in a client's own; 1 keeps no own models.",
    "clip": "L2 norm that a whole update (prifedsync: a record's gradient) is clipped to.",
    "noise_multiplier": "Standard deviation of the noise over the clip norm; --epsilon finds it for you.",
    "weight_cap": "Weigh clients by min(records, cap) / cap; 0 weighs all the same.",
    "lr": "Learning rate of the clients.",
    "epochs": "Local passes over a client's records.",
    "steps": "Local steps instead of epochs, if not 0.",
    "batch_size": "Records in a local step.",
    "momentum": "Momentum of the clients.",
    "weight_decay": "Weight decay of the clients.",
    "lr_decay": "Factor on the learning rate after each round.",
    "proximal": "Strength of the pull to the global model (FedProx).",
    "server_optimizer": "sgd, momentum or adam.",
    "server_lr": "Learning rate of the server.",
    "average": "Report an average of iterates, with this decay per round; 0 reports the last.",
}
_METAVARS = {int: "N", float: "X", bool: "", str: "TEXT"}


def _option(name: str, kind: Any, text: str, panel: str, metavar: str | None = None) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    shown = _METAVARS.get(kind, "TEXT") if metavar is None else metavar
    option = typer.Option(flag, help=text, metavar=shown, rich_help_panel=panel, show_default=False)
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def signature() -> inspect.Signature:
    """The options of `train`: keys of run.toml, and the arguments of every recipe."""
    text = f"{', '.join(RECIPES)}; see sfumato recipes. By default dp-fedavg."
    named = Annotated[str | None, typer.Argument(help=text, metavar="RECIPE", show_default=False)]
    parameters = [inspect.Parameter("recipe", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=named)]
    parameters += [_option(name, kind, text, "What to train") for name, (_, kind, text) in KEYS.items()]
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
        parameters.append(_option(name, kind, text, "Recipe"))
    panel = "Run"
    parameters += [
        _option("out", str, "Folder of the run; an existing one is never overwritten.", panel, "FOLDER"),
        _option("config", str, "A run.toml to start from.", panel, "FILE"),
        _option("set", list[str], "Any key of run.toml, e.g. rounds=60 or options.lr=0.1.", panel, "KEY=VALUE"),
        _option("resume", str, "Folder of a run that was interrupted.", panel, "FOLDER"),
        _option("quiet", bool, "Print nothing but errors.", panel),
        _option("json", bool, "Print run.json and nothing else.", panel),
    ]
    return inspect.Signature(parameters)
