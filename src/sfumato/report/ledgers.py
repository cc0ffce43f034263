"""A ledger in words: its runs, what they have spent together, what that proves, and what is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any, TypeAlias

from sfumato.account.event import Nothing, Relation, Unit
from sfumato.errors import BadValue
from sfumato.guarantee import PUBLIC, Guarantee, guarantee, rounded_up, text_of, told_once
from sfumato.ledger.ledger import PROMISE, Ledger
from sfumato.ledger.spent import Cost
from sfumato.run.request import resolved

Proven: TypeAlias = dict[str, dict[str, Guarantee]]  # by unit and view
_SEEDED = "simulation: holds for whoever does not know the seeds"


def reading_delta(book: Ledger) -> float:
    """Where to read epsilon if nobody says: where the budget stands, or where the run in this folder reads its own."""
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
    extra = (_SEEDED,) if book.seeded else ()
    views = {"world": PUBLIC, "server": "the server"}
    rests_on = ("as each run states", *book.assumptions, *extra)

    def proven(unit: Unit, cost: Cost, view: str) -> Guarantee:
        event, relation = getattr(cost, view), cost.relation
        why, against = "it sees the messages before any noise, or holds the records itself", views[view]
        inside = unit is Unit.RECORD and by_whole_clients(book)
        facts: dict[str, Any] = {"unit": unit, "relation": relation, "view": against, "assumptions": rests_on}
        return guarantee(event, delta, **facts, by=book.price, unpaid=why, whole_client=inside)

    costs = {unit: cost for unit in Unit if (cost := book.spent(unit)) is not None}
    return {str(unit): {view: proven(unit, cost, view) for view in views} for unit, cost in costs.items()}


def by_whole_clients(book: Ledger) -> bool:
    """Whether all that is known of a record in a ledger is the bound of a client whose data are all replaced (PRIVACY R16)."""
    found = []
    for entry in book.entries():
        client, record = entry.costs.get(Unit.CLIENT), entry.costs.get(Unit.RECORD)
        replaced = client if client is None or client.relation is Relation.REPLACE else client.swapped
        found.append(
            record is not None
            and replaced is not None
            and (record.world, record.server) == (replaced.world, replaced.server)
        )
    return all(found)


def contents(book: Ledger, delta: float, proven: Proven) -> dict[str, Any]:
    """All of it, for programs."""
    return {
        "schema": int(book.fact("schema") or 0),
        "population": book.fact("population"),
        "basis": None if book.basis is None else book.basis.words,
        "budget": None if book.budget is None else asdict(book.budget),
        "own_budgets": _own(book),
        "delta": delta,
        "spent": _spent(proven),
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


def _spent(proven: Proven) -> dict[str, dict[str, dict[str, Any]]]:
    """What all runs have spent together, for each unit and view."""
    return {
        unit: {
            view: {"epsilon": one.epsilon, "relation": str(one.relation), "guarantee": str(one)}
            for view, one in views.items()
        }
        for unit, views in proven.items()
    }


def _own(book: Ledger) -> list[dict[str, Any]]:
    """Each client's own budget, and what all runs together have spent of it; None where that is not proven."""
    lines = []
    for line in book.own_budgets:
        cost = book.spent(line.unit)
        unknown = cost is None and book.count > 0
        so_far = None if unknown else line.spent(Nothing() if cost is None else cost.world, by=book.price)
        lines.append({**asdict(line), "spent": so_far})
    return lines


def lines(book: Ledger, found: dict[str, Any], delta: float, proven: Proven) -> list[str]:
    """What `contents` found, for people."""
    said = [f"population {found['population']}: {_rounds(book.count)} reserved"]
    said += [f"  basis: {book.basis.words}"] if book.basis is not None else []
    said += [f"  run {name}: {words}" for name, words in runs_in_words(book)]
    said += [f"  {note}" for note in notes(book)]
    said += ["", *text_of(merged(proven)), ""] if proven else []
    said += own_budgets_in_words(book)
    if book.budget is not None:
        return [*said, f"common budget: {budget_in_words(book)}"]
    if found["own_budgets"]:
        return said
    return [*said, f"no common budget; set one with: sfumato ledger {book.path} --budget EPSILON --delta {delta:g}"]


def runs_in_words(book: Ledger) -> list[tuple[str, str]]:
    """The name of each run in it, and what it has done."""
    entries, found = book.entries(), []
    for run in dict.fromkeys(entry.run for entry in entries):
        own = [entry for entry in entries if entry.run == run]
        costs = [entry.costs.get(Unit.CLIENT) or next(iter(entry.costs.values())) for entry in own]
        promised = run.startswith(PROMISE)
        rounds = (
            f"{max(entry.round for entry in own) + 1} rounds promised by its server" if promised else _rounds(len(own))
        )
        kinds = Counter(cost.world.words() for cost in costs)  # a basis is paid before rounds, and rounds may differ
        what = [f"{times} of them: {one}" for one, times in kinds.items()] if len(kinds) > 1 else list(kinds)
        words = [rounds, *what, costs[0].relation.words]
        words += ["seeded"] if own[0].seeded else []
        unsettled = sum(not entry.settled for entry in own)
        words += [f"{unsettled} never settled"] if unsettled and not promised else []
        found.append((run.removeprefix(PROMISE)[:8], "; ".join(words)))
    return found


def _rounds(count: int) -> str:
    return f"{count} round{'' if count == 1 else 's'}"


def notes(book: Ledger) -> list[str]:
    """What has to be said of how its runs are added up."""
    relations = {entry.costs[Unit.CLIENT].relation for entry in book.entries() if Unit.CLIENT in entry.costs}
    differ = "relations differ, so everything is stated under replace, which all of them have"
    return [differ] if len(relations) > 1 else []


def merged(proven: Proven) -> list[Guarantee]:
    """What is proven against the public and against the server, once where that is the same; then for other units."""
    first, *others = proven.values() if proven else ({},)
    said = told_once(first["world"], first["server"]) if first else ()
    return [*said, *(views["world"] for views in others)]


def own_budgets_in_words(book: Ledger) -> list[str]:
    """Each client's own budget."""
    said = []
    for line, own in zip(book.own_budgets, _own(book), strict=True):
        so_far = "what is not known" if own["spent"] is None else f"epsilon {rounded_up(own['spent'], 4)}"
        whose = line.whose or " of each client"
        delta = rounded_up(line.delta, 3)
        said.append(f"own budget{whose}: epsilon {line.epsilon:g} at delta {delta}, of which {so_far} was spent")
    return said


def budget_in_words(book: Ledger) -> str:
    """The common budget; nothing where there is none."""
    budget = book.budget
    return "" if budget is None else f"epsilon {budget.epsilon:g} at delta {budget.delta:g} for each {budget.unit}"
