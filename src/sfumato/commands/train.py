"""`sfumato train`: one command trains, and says what is proven of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sfumato.commands.answers import refusing
from sfumato.commands.asked import auto_from, cohort_from, request_from
from sfumato.commands.options import KEYS, flag, signature
from sfumato.commands.paragraphs import print_lines
from sfumato.commands.preparing import preparing
from sfumato.errors import BadValue, BudgetExceeded, DataError
from sfumato.run.request import Request, resolved

if TYPE_CHECKING:
    from sfumato.engine.simulation import Simulation
    from sfumato.engine.workers import Factory
    from sfumato.guarantee import Guarantee
    from sfumato.run.prepare import Prepared


def _train(recipe: str | None, **given: Any) -> None:
    quiet, as_json = bool(given.pop("quiet", False)), bool(given.pop("json", False))
    with preparing(quiet or as_json):
        ready = _prepared(recipe, **given)
    train_as_prepared(**ready, quiet=quiet, as_json=as_json)


def _prepared(recipe: str | None, **given: Any) -> dict[str, Any]:
    """What `train_as_prepared` needs, from the words of the command line."""
    chosen = {name: value for name, value in given.items() if value is not None and value != []}
    resume, config, out = chosen.pop("resume", None), chosen.pop("config", None), chosen.pop("out", None)
    settings = chosen.pop("set", [])
    if resume is not None and "shards" in chosen:
        raise BadValue(
            f"--shards {chosen['shards']}: a run that goes on has the shards that it began with. Leave it out."
        )
    cohort = cohort_from(chosen)
    seconds = auto_from(chosen, config)
    if resume is not None:
        rounds = chosen.pop("rounds", None)
        if recipe or chosen or settings or config or out or seconds is not None:
            raise BadValue(
                "--resume goes on with a run as it was asked for; it takes no other option but --rounds, --ray, --workers, --quiet "
                "and --json."
            )
        folder = Path(resume)
        request, found, keys = *resumed(folder, rounds), frozenset[str]()
    else:
        (request, keys), found = request_from(recipe, config, chosen, settings), {}
        folder = new_folder(out, request)

    if request.central and given.get("ray") is not None:
        raise BadValue(
            f"--ray {given['ray']}: in {request.recipe} one holder computes every round alone. Leave it out."
        )

    from sfumato.run.auto import Auto
    from sfumato.run.prepare import prepare

    begun = folder if resume is not None else None
    auto = None if seconds is None else Auto(keys, seconds)
    prepared = prepare(request, found, auto=auto, folder=begun)
    return {"prepared": prepared, "folder": folder, "resume": resume is not None, "cohort": cohort}


def train_as_prepared(
    prepared: Prepared,
    folder: Path,
    *,
    resume: bool = False,
    quiet: bool,
    as_json: bool,
    cohort: Factory | None = None,
) -> None:
    """Train, show how it goes, and say what it cost. `cohort` makes what computes the clients, if not this process."""
    from sfumato.commands.progress import follow
    from sfumato.engine.workers import Here
    from sfumato.report import write_page
    from sfumato.run.run import Run

    stopped = None
    if not (quiet or as_json):
        tell_choices(prepared)
        caution(prepared, err=True)
    try:
        with preparing(quiet or as_json):
            ready = Run(prepared, folder, resume=resume, page=write_page, cohort=cohort or Here)
        with closing(ready) as run:
            try:
                follow(run, quiet=quiet or as_json)
            except BudgetExceeded as error:
                stopped = error
            if as_json:
                typer.echo((folder / "run.json").read_text(), nl=False)
            elif not quiet:
                tell(run.simulation, prepared, folder)
                if run.simulation.stopped and stopped is None:
                    print_lines("", run.simulation.stopped)
    except KeyboardInterrupt:
        print_lines(f"interrupted; go on with: sfumato train --resume {folder}", err=True)
        raise typer.Exit(130) from None
    if stopped:
        print_lines(f"sfumato: {stopped}", err=True)
        raise typer.Exit(3)


def tell_choices(prepared: Prepared) -> None:
    """What --auto chose, in one line, as options that could be given; explain --auto has the reasons."""
    if prepared.choices:
        names = {key.path: name for name, key in KEYS.items()}
        options = ((names.get(choice.key, choice.key.rpartition(".")[2]), choice.value) for choice in prepared.choices)
        print_lines(f"auto: {' '.join(f'{flag(name)} {value}' for name, value in options)}")


def caution(prepared: Prepared, *, err: bool) -> None:
    """A delta that promises next to nothing is allowed, but not without a word."""
    from sfumato.planning import words

    units = prepared.round.units(prepared.population.size)
    said = words.caution(prepared.request.chosen_delta, units, str(prepared.round.unit))
    if said and not (prepared.round.nonprivate or prepared.round.unproven):
        print_lines(f"caution: {said}", err=err)


def resumed(folder: Path, rounds: int | None, command: str = "train") -> tuple[Request, Mapping[str, Any]]:
    """The request of a run, with more rounds if these are asked for, and what was found for it."""
    path = folder / "run.toml"
    if not path.is_file():
        raise DataError(f"--resume {folder}: there is no run. Give the folder of one, e.g. runs/first.")
    if (folder / "tune.json").is_file():
        raise BadValue(
            f"--resume {folder}: it holds the best of a secret number of runs, and to go on would tell of the others. Start a new "
            f"run with its settings, which costs as much as any: sfumato train --config {path}."
        )
    request = Request.from_toml(path)
    if bool(request.federation) != (command == "server"):
        other = "server" if request.federation else "train"
        raise BadValue(f"--resume {folder}: go on with this run by sfumato {other} --resume {folder}.")
    if rounds is not None:
        request = replace(request, rounds=rounds)
    again = f"rounds={request.rounds}, folder={str(folder)!r}, resume=True"
    request.require_named(f"simulate(round, population, module, objective, {again}).")
    return request, resolved(path)


def new_folder(out: str | None, request: Request) -> Path:
    """The folder that was asked for, or one with a number; never one that holds something."""
    if out is not None:
        folder = Path(out)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadValue(
                f"--out {out} exists already, and is never overwritten. Give another folder, or --resume {out}."
            )
        return folder
    data = Path(request.data.name)
    called = data.stem if data.suffix in (".csv", ".parquet") else data.name.replace(":", "-")
    name = f"{request.recipe or 'round'}-{called}"
    number = 1
    while (Path("runs") / f"{name}-{number}").exists():
        number += 1
    return Path("runs") / f"{name}-{number}"


def tell(run: Simulation, prepared: Prepared, folder: Path) -> None:
    """What a finished run reached and what it cost: first the numbers, then what they mean."""
    from sfumato.account.event import Unit
    from sfumato.guarantee import rounded_up, text_of, told_once

    summary, delta = json.loads((folder / "run.json").read_text()), prepared.request.chosen_delta
    proven = told_once(run.guarantee(delta), run.guarantee(delta, server=True))
    print_lines("")
    if summary["accuracy"] is not None:
        rounds = "1 round" if summary["rounds"] == 1 else f"{summary['rounds']} rounds"
        print_lines(f"{summary['primary']} {summary['accuracy']:.4f} on public test data after {rounds}")
    print_lines(*(one.headline for one in proven if one.epsilon is not None or one is proven[0]), "")
    if (basis := summary["basis"]) is not None:
        alone = rounded_up(basis["epsilon_alone"], 4)
        print_lines(
            f"basis: {basis['above_noise']} of {basis['dimension']} directions stand out of its noise; epsilon {alone} alone, and "
            "counted in all others",
            "",
        )
    print_lines(*text_of(proven))
    if summary["budgets"]:
        from sfumato.budget.words import in_words

        print_lines("", "each client's own budget, and the epsilon that was spent of it:")
        print_lines(*(f"  {line}" for line in in_words(summary["budgets"])))
    caution(prepared, err=False)
    derivation = run.derivation
    if derivation.primary.unit is Unit.CLIENT and Unit.RECORD in derivation.units:
        inside = run.guarantee(delta, Unit.RECORD)
        if inside.epsilon is not None:
            print_lines("", _inside(inside))
    print_lines(f"report: {folder / 'report.html'}")


def _inside(proven: Guarantee) -> str:
    """What is proven of one record, beside what is proven of its client; the client's own bound is not said to be a record's."""
    if not proven.whole_client:
        return f"{proven.headline[0].upper()}{proven.headline[1:]}."
    return (
        "The replace bound of a whole client also bounds any change inside it, such as one record: "
        f"{proven.amount()}, against {proven.observer}."
    )


def train(**given: Any) -> None:
    """Train a model over many clients, and say what it cost in privacy.

    With no argument: DP-FedAvg on scikit-learn's digits, 200 clients, epsilon 2, in a few seconds.
    """
    with refusing(bool(given.get("json"))):
        _train(given.pop("recipe"), **given)


train.__signature__ = signature()  # type: ignore[attr-defined]
train.__annotations__ = {p.name: p.annotation for p in signature().parameters.values()}
