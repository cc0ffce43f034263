"""`sfumato ledger`: what has been spent on a population, by which runs, and what is left."""

from __future__ import annotations

import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from sfumato.account.event import Unit
from sfumato.commands.answers import Json, show
from sfumato.errors import BadValue, LedgerError


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
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Make the ledger of several runs that a file plans; without a plan, a shared ledger is adaptive."
        ),
    ] = None,
    export: Annotated[Path | None, typer.Option(help="Write everything to a JSON file.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the file; exit status 2 if it is damaged.")] = False,
    json: Json = False,
) -> None:
    """List a ledger: its runs, what they spent together, and what that proves."""
    from sfumato.engine.checkpoint import LEDGER
    from sfumato.guarantee import check_delta
    from sfumato.ledger.ledger import Budget, Ledger
    from sfumato.report.ledgers import contents, guarantees, lines, reading_delta

    if plan is not None:
        from sfumato.run.several import store_plan

        store_plan(file, plan)
    book = Ledger(file / LEDGER if file.is_dir() else file, None)
    if damage := book.damage():
        raise LedgerError(f"{file} is damaged: " + "; ".join(damage))
    if check:
        if (head := _head_of(file)) is not None and not book.was_at(head):
            raise LedgerError(
                f"{file}: run.json states the head {head}, which this ledger never had. Restore the ledger of the run."
            )
        with book.connected(to_write=False):
            interrupted = sum(not entry.settled for entry in book.entries())
            rounds = f"{book.count} round{'' if book.count == 1 else 's'}"
            typer.echo(
                f"ledger OK: {rounds} recorded, {interrupted} interrupted (they count); head of the chain {book.head}"
            )
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
    at = check_delta(reading_delta(book) if delta is None else delta)
    proven = guarantees(book, at)
    found = contents(book, at, proven)
    if export is not None:
        if export.exists():
            raise BadValue(f"--export {export} exists already. Give another file.")
        export.write_text(jsonlib.dumps(found, indent=2) + "\n")
        typer.echo(f"{export}")
    else:
        show(found, lines(book, found, at, proven), json)


def _head_of(file: Path) -> str | None:
    """The head of the ledger that run.json states, in a run's folder; None elsewhere, and of older versions."""
    path = file / "run.json"
    if not path.is_file():
        return None
    from sfumato.run.schema import read_summary

    head = read_summary(file).get("ledger_head")
    return None if head is None else str(head)
