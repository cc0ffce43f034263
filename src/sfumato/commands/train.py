"""`sfumato train`: one command trains, and tells the truth about it."""

from __future__ import annotations

import inspect
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.commands.answers import refusing
from sfumato.errors import BadValue, BudgetExceeded, DataError, nearest
from sfumato.recipes import RECIPES, find
from sfumato.request import Request, parse_setting

if TYPE_CHECKING:
    from sfumato.run import Run

# Options that stand for a key of run.toml: name -> (key, type, help).
_KEYS: dict[str, tuple[str, type, str]] = {
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


def _train(recipe: str | None, **given: Any) -> None:
    chosen = {name: value for name, value in given.items() if value is not None and value != []}
    quiet, as_json = bool(chosen.pop("quiet", False)), bool(chosen.pop("json", False))
    resume, config, out = chosen.pop("resume", None), chosen.pop("config", None), chosen.pop("out", None)
    settings = chosen.pop("set", [])
    if resume is not None:
        if recipe or chosen or settings or config or out:
            raise BadValue(
                "--resume goes on with a run as it was asked for; it takes no other option but --quiet and --json."
            )
        request, folder = _resumed(Path(resume)), Path(resume)
    else:
        request = _request(recipe, config, chosen, settings)
        folder = _new_folder(out, request)

    from sfumato.commands.progress import follow
    from sfumato.prepare import prepare
    from sfumato.run import Run

    prepared, stopped = prepare(request), None
    try:
        with closing(Run(prepared, folder, resume=resume is not None)) as run:
            try:
                follow(run, quiet=quiet or as_json)
            except BudgetExceeded as error:
                stopped = error
            _finish(run, quiet, as_json)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; go on with: sfumato train --resume {folder}", err=True)
        raise typer.Exit(130) from None
    if stopped:
        typer.echo(f"sfumato: {stopped}", err=True)
        raise typer.Exit(3)


def _finish(run: Run, quiet: bool, as_json: bool) -> None:
    from sfumato.report import write_report

    write_report([run.folder], run.folder / "report.html")
    if as_json:
        typer.echo((run.folder / "run.json").read_text(), nl=False)
    elif not quiet:
        _tell(run)


def _resumed(folder: Path) -> Request:
    if not (folder / "run.toml").is_file():
        raise DataError(f"--resume {folder}: there is no run. Give the folder of one, e.g. runs/first.")
    return Request.from_toml(folder / "run.toml")


def _request(recipe: str | None, config: str | None, chosen: dict[str, Any], settings: list[str]) -> Request:
    request = Request.from_toml(Path(config)) if config else Request()
    if recipe:
        find(recipe)
        request = replace(request, recipe=recipe)
    if "data" in chosen and chosen["data"] != "digits" and not config:  # the defaults are those of digits
        request = request.with_value("data.records_per_client", 0).with_value("data.clients", 100)
        request = _with_its_own_clients(request, chosen["data"])
        if "clients" not in chosen and not any(words.startswith("data.clients=") for words in settings):
            _check_declared(chosen["data"])
    options = find(request.recipe).options
    for name, value in chosen.items():
        if name in _KEYS:
            request = request.with_value(_KEYS[name][0], value)
        elif name in options:
            request = request.with_value(f"options.{name}", value)
        else:
            flag = "--" + name.replace("_", "-")
            raise BadValue(f"the recipe {request.recipe!r} has no option {flag}. {nearest(name, options)}")
    for words in settings:
        request = request.with_value(*parse_setting(words))
    private = "noise_multiplier" in find(request.recipe).options
    if private and request.epsilon is None and "noise_multiplier" not in request.options and not request.unproven:
        request = replace(request, epsilon=2.0)
    return request


def _with_its_own_clients(request: Request, data: str) -> Request:
    """Data that come with clients are split into these, unless told otherwise."""
    from sfumato.data.load import NATURAL

    if data not in NATURAL:
        return request
    return request.with_value("data.split", "natural").with_value("data.task", "next-character")


def _check_declared(data: str) -> None:
    """Whose data it is must say how many clients there are: to count them would tell something about each."""
    if ":" in data or Path(data).is_dir():
        raise BadValue(
            f"--data {data}: how many clients has it? Declare it with --clients: it is public, and not counted."
        )


def _new_folder(out: str | None, request: Request) -> Path:
    if out is not None:
        folder = Path(out)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadValue(
                f"--out {out} exists already, and is never overwritten. Give another folder, or --resume {out}."
            )
        return folder
    name = f"{request.recipe}-{Path(request.data.name).name.replace(':', '-')}"
    number = 1
    while (Path("runs") / f"{name}-{number}").exists():
        number += 1
    return Path("runs") / f"{name}-{number}"


def _tell(run: Run) -> None:
    from sfumato.account.event import Unit
    from sfumato.guarantee import rounded_up

    typer.echo("")
    summary = json.loads((run.folder / "run.json").read_text())
    for name, value in summary["metrics"].items():
        if name == run.prepared.objective.primary and value is not None:
            typer.echo(f"{name} {value:.4f} on public test data after {summary['rounds']} rounds")
    typer.echo(str(run.guarantee()))
    typer.echo(str(run.guarantee(server=True)))
    derivation = run.simulation.derivation
    if derivation.primary.unit is Unit.CLIENT and Unit.RECORD in derivation.units:
        epsilon = run.guarantee(Unit.RECORD).epsilon
        if epsilon is not None:
            shown = rounded_up(epsilon, 4)
            typer.echo(f"For one record of a client, swapped for another: epsilon {shown} at the same delta.")
    typer.echo(f"report: {run.folder / 'report.html'}")


_METAVARS = {int: "N", float: "X", bool: "", str: "TEXT"}


def _option(name: str, kind: Any, text: str, panel: str, metavar: str | None = None) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    shown = _METAVARS.get(kind, "TEXT") if metavar is None else metavar
    option = typer.Option(flag, help=text, metavar=shown, rich_help_panel=panel, show_default=False)
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _signature() -> inspect.Signature:
    """The options of `train`: keys of run.toml, and the arguments of every recipe."""
    text = f"{', '.join(RECIPES)}; see sfumato recipes. By default dp-fedavg."
    named = Annotated[str | None, typer.Argument(help=text, metavar="RECIPE", show_default=False)]
    parameters = [inspect.Parameter("recipe", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=named)]
    parameters += [_option(name, kind, text, "What to train") for name, (_, kind, text) in _KEYS.items()]
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


def train(**given: Any) -> None:
    """Train a model over many clients, and say what it cost in privacy.

    With no argument: DP-FedAvg on scikit-learn's digits, 200 clients, epsilon 2, in a few seconds.
    """
    with refusing(bool(given.get("json"))):
        _train(given.pop("recipe"), **given)


train.__signature__ = _signature()  # type: ignore[attr-defined]
train.__annotations__ = {p.name: p.annotation for p in _signature().parameters.values()}
