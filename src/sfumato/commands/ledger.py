"""`sfumato ledger`: what has been spent on a population, by which runs, and what is left."""

from __future__ import annotations

import json as jsonlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from sfumato.account.event import Unit
from sfumato.commands.answers import Json, show
from sfumato.errors import BadValue, LedgerError

if TYPE_CHECKING:
    from sfumato.guarantee import Guarantee
    from sfumato.ledger.ledger import Ledger
    from sfumato.ledger.spent import Cost

    Proven: TypeAlias = dict[str, dict[str, Guarantee]]  # by unit and view

_SEEDED = "simulation: holds for whoever does not know the seeds"


def ledger(
    file: Annotated[Path, typer.Argument(help="A shared ledger, a run's ledger.sqlite, or a run's folder.")],
    delta: Annotated[
        float | None, typer.Option(help="Where to read epsilon; else the budget's, else the run's.")
    ] = None,
    unit: Annotated[Unit, typer.Option(help="For --budget and --budgets: whose.")] = Unit.CLIENT,
    budget: Annotated[float | None, typer.Option(help="Set the common budget: no run goes past this epsilon.")] = None,
    budgets: Annotated[
        Path | None, typer.Option(help="Set each client's own budget, from a file: it stops alone.")
    ] = None,
    export: Annotated[Path | None, typer.Option(help="Write everything to a JSON file.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the file; exit status 2 if it is damaged.")] = False,
    json: Json = False,
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
    if budgets is not None:
        from sfumato.budget.budgets import Budgets

        own = Budgets.of(budgets, sys.maxsize)
        if own.own and book.other_numbers:
            raise BadValue(
                f"--budgets {budgets}: the clients of {file} have ids that are numbers, which a ledger does not keep, so it cannot "
                "tell whom you mean. In Python: Ledger(...).set_own_budgets(Budgets.of(file, size, ids).lines(unit))."
            )
        book.set_own_budgets(own.lines(unit))
    at = check_delta(_delta(book, delta))
    proven = guarantees(book, at)
    found = _contents(book, at, proven)
    if export is not None:
        if export.exists():
            raise BadValue(f"--export {export} exists already. Give another file.")
        export.write_text(jsonlib.dumps(found, indent=2) + "\n")
        typer.echo(f"{export}")
    else:
        show(found, _lines(book, found, at, proven), json)


def _delta(book: Ledger, given: float | None) -> float:
    """Where to read epsilon: where it is asked for, where the budget stands, or where the run in this folder reads its own."""
    from sfumato.run.request import resolved

    if given is not None:
        return given
    if book.budget is not None:
        return book.budget.delta
    if book.own_budgets:
        return max(line.delta for line in book.own_budgets)
    toml = book.path.with_name("run.toml") if book.path is not None and book.path.name == "ledger.sqlite" else None
    found = resolved(toml).get("delta") if toml is not None and toml.is_file() else None
    if found is None:
        raise BadValue(
            f"{book.path} is no run's own ledger and has no budget. Say where to read epsilon with --delta, e.g. 1e-5."
        )
    return float(found)


def guarantees(book: Ledger, delta: float) -> Proven:
    """What all runs in a ledger prove together, for each unit and view."""
    from sfumato.guarantee import guarantee

    extra = (_SEEDED,) if any(entry.seeded for entry in book.entries()) else ()
    views = {"world": "everyone who sees the models", "server": "the server"}
    rests_on = ("as each run states", *book.assumptions, *extra)

    def proven(unit: Unit, cost: Cost, view: str) -> Guarantee:
        event, relation = getattr(cost, view), cost.relation
        why, against = "it sees the messages before any noise, or holds the records itself", views[view]
        return guarantee(event, delta, unit=unit, relation=relation, view=against, assumptions=rests_on, unpaid=why)

    costs = {unit: cost for unit in Unit if (cost := book.spent(unit)) is not None}
    return {str(unit): {view: proven(unit, cost, view) for view in views} for unit, cost in costs.items()}


def _contents(book: Ledger, delta: float, proven: Proven) -> dict[str, Any]:
    return {
        "schema": int(book.fact("schema") or 0),
        "population": book.fact("population"),
        "budget": None if book.budget is None else asdict(book.budget),
        "own_budgets": _own(book),
        "delta": delta,
        "spent": {
            unit: {
                view: {"epsilon": one.epsilon, "relation": str(one.relation), "guarantee": str(one)}
                for view, one in views.items()
            }
            for unit, views in proven.items()
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
            for entry in book.entries()
        ],
    }


def _own(book: Ledger) -> list[dict[str, Any]]:
    """Each client's own budget, and what all runs together have spent of it; None where that is not proven."""
    from sfumato.account.event import Nothing

    lines = []
    for line in book.own_budgets:
        cost = book.spent(line.unit)
        unknown = cost is None and book.count > 0
        spent = None if unknown else line.spent(Nothing() if cost is None else cost.world)
        lines.append({**asdict(line), "spent": spent})
    return lines


def _lines(book: Ledger, found: dict[str, Any], delta: float, proven: Proven) -> list[str]:
    from sfumato.guarantee import rounded_up, told_once
    from sfumato.ledger.ledger import PROMISE

    entries = book.entries()
    lines = [f"population {found['population']}: {book.count} rounds reserved"]
    for run in dict.fromkeys(entry.run for entry in entries):
        own = [entry for entry in entries if entry.run == run]
        cost = own[0].costs.get(Unit.CLIENT) or next(iter(own[0].costs.values()))
        promised = run.startswith(PROMISE)
        rounds = (
            f"{max(entry.round for entry in own) + 1} rounds promised by its server"
            if promised
            else f"{len(own)} rounds"
        )
        notes = [rounds, cost.world.words(), cost.relation.words]
        notes += ["seeded"] if own[0].seeded else []
        unsettled = sum(not entry.settled for entry in own)
        notes += [f"{unsettled} never settled"] if unsettled and not promised else []
        lines.append(f"  run {run.removeprefix(PROMISE)[:8]}: {'; '.join(notes)}")
    if len({entry.costs[Unit.CLIENT].relation for entry in entries if Unit.CLIENT in entry.costs}) > 1:
        lines.append("  relations differ, so everything is stated under replace, which all of them have")
    for views in list(proven.values())[:1]:
        lines += map(str, told_once(views["world"], views["server"]))
    lines += [str(views["world"]) for views in list(proven.values())[1:]]
    for line, own in zip(book.own_budgets, found["own_budgets"], strict=True):
        said = "what is not known" if own["spent"] is None else f"epsilon {rounded_up(own['spent'], 4)}"
        whose = line.whose or " of each client"
        lines.append(f"own budget{whose}: epsilon {line.epsilon:g} at delta {line.delta:g}, of which {said} was spent")
    budget = found["budget"]
    if budget is None and found["own_budgets"]:
        return lines
    if budget is None:
        set_one = f"sfumato ledger {book.path} --budget EPSILON --delta {delta:g}"
        return [*lines, f"no common budget; set one with: {set_one}"]
    said = f"epsilon {budget['epsilon']:g} at delta {budget['delta']:g} for each {budget['unit']}"
    return [*lines, f"common budget: {said}"]
