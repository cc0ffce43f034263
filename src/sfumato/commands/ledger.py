"""`sfumato ledger`: what has been spent on a population, by which runs, and what is left."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.account.event import Relation, Unit
from sfumato.errors import BadValue, LedgerError

if TYPE_CHECKING:
    from sfumato.guarantee import Guarantee
    from sfumato.ledger.ledger import Ledger

_SEEDED = "simulation: holds for whoever does not know the seeds"


def ledger(
    file: Annotated[Path, typer.Argument(help="A shared ledger, a run's ledger.sqlite, or a run's folder.")],
    delta: Annotated[
        float | None, typer.Option(help="Where to read epsilon; else the budget's, else the run's.")
    ] = None,
    unit: Annotated[Unit, typer.Option(help="For --budget: whose.")] = Unit.CLIENT,
    budget: Annotated[float | None, typer.Option(help="Set the common budget: no run goes past this epsilon.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write everything to a JSON file.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the file; exit status 2 if it is damaged.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List a ledger: its runs, what they spent together, and what that proves."""
    from sfumato.guarantee import check_delta
    from sfumato.ledger.ledger import Budget, Ledger

    book = Ledger(file / "ledger.sqlite" if file.is_dir() else file, None)
    if damage := book.damage():
        raise LedgerError(f"{file} is damaged: " + "; ".join(damage))
    if check:
        open_rounds = sum(1 for entry in book.entries() if not entry.settled)
        typer.echo(f"{file} is whole: {book.count} reservations, {open_rounds} never settled (they count).")
        return
    if budget is not None:
        if not budget > 0:
            raise BadValue(f"--budget {budget}: a budget is positive, e.g. 2.0.")
        if delta is None:
            raise BadValue("--budget needs --delta: epsilon means nothing without it.")
        book.set_budget(Budget(budget, check_delta(delta), unit))
    at = check_delta(_delta(book, delta))
    found = _contents(book, at)
    if export is not None:
        if export.exists():
            raise BadValue(f"--export {export} exists already. Give another file.")
        export.write_text(json.dumps(found, indent=2) + "\n")
        typer.echo(f"{export}")
    elif json_:
        typer.echo(json.dumps(found, indent=2))
    else:
        _tell(book, found, at)


def _delta(book: Ledger, given: float | None) -> float:
    """Where to read epsilon: where it is asked for, where the budget stands, or where the run in this folder reads its own."""
    from sfumato.run.request import resolved

    if given is not None:
        return given
    if book.budget is not None:
        return book.budget.delta
    toml = book.path.with_name("run.toml") if book.path is not None and book.path.name == "ledger.sqlite" else None
    found = resolved(toml).get("delta") if toml is not None and toml.is_file() else None
    if found is None:
        raise BadValue(
            f"{book.path} is no run's own ledger and has no budget. Say where to read epsilon with --delta, e.g. 1e-5."
        )
    return float(found)


def guarantees(book: Ledger, delta: float) -> dict[str, dict[str, Guarantee]]:
    """What all runs in a ledger prove together, for each unit and view."""
    from sfumato.guarantee import guarantee

    extra = (_SEEDED,) if any(entry.seeded for entry in book.entries()) else ()
    views = {"world": "everyone who sees the models", "server": "the server"}
    found: dict[str, dict[str, Guarantee]] = {}
    for unit in Unit:
        cost = book.spent(unit)
        if cost is not None:
            found[str(unit)] = {
                view: guarantee(
                    getattr(cost, view),
                    delta,
                    unit=unit,
                    relation=cost.relation,
                    view=words,
                    assumptions=("as each run states", *book.assumptions, *extra),
                )
                for view, words in views.items()
            }
    return found


def _contents(book: Ledger, delta: float) -> dict[str, Any]:
    entries = book.entries()
    budget = book.budget
    return {
        "schema": int(book.fact("schema") or 0),
        "population": book.fact("population"),
        "budget": None
        if budget is None
        else {"epsilon": budget.epsilon, "delta": budget.delta, "unit": str(budget.unit)},
        "delta": delta,
        "spent": {
            unit: {
                view: {"epsilon": proven.epsilon, "relation": str(proven.relation), "guarantee": str(proven)}
                for view, proven in views.items()
            }
            for unit, views in guarantees(book, delta).items()
        },
        "reservations": [
            {
                "run": entry.run,
                "round": entry.round + 1,
                "attempt": entry.attempt,
                "seeded": entry.seeded,
                "settled": entry.settled,
                "costs": {str(unit): cost.to_json() for unit, cost in entry.costs.items()},
            }
            for entry in entries
        ],
    }


def _tell(book: Ledger, found: dict[str, Any], delta: float) -> None:

    typer.echo(f"population {found['population']}: {book.count} rounds reserved")
    runs = Counter(entry.run for entry in book.entries())
    for run, times in runs.items():
        own = [entry for entry in book.entries() if entry.run == run]
        cost = own[0].costs.get(Unit.CLIENT) or next(iter(own[0].costs.values()))
        notes = [f"{times} rounds", cost.world.words(), _short(cost.relation)]
        notes += ["seeded"] if own[0].seeded else []
        notes += [f"{sum(not entry.settled for entry in own)} never settled"] if any(not e.settled for e in own) else []
        typer.echo(f"  run {run[:8]}: {'; '.join(notes)}")
    if len({cost.relation for entry in book.entries() for cost in [entry.costs.get(Unit.CLIENT)] if cost}) > 1:
        typer.echo("  relations differ, so everything is stated under replace, which all of them have")
    for views in found["spent"].values():
        typer.echo(views["world"]["guarantee"])
    for views in list(found["spent"].values())[:1]:
        typer.echo(views["server"]["guarantee"])
    budget = found["budget"]
    if budget is None:
        typer.echo(f"no common budget; set one with: sfumato ledger {book.path} --budget EPSILON --delta {delta:g}")
    else:
        typer.echo(
            f"common budget: epsilon {budget['epsilon']:g} at delta {budget['delta']:g} for each {budget['unit']}"
        )


def _short(relation: Relation) -> str:
    return relation.words
