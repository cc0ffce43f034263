"""A plan of several runs, which a shared ledger holds before any of them: what `sfumato ledger L --plan FILE` reads.

    [[run]]
    config = "first.toml"     # as for `sfumato train --config`; relative to this file
    times = 3                 # how many such runs there may be. Default: 1.

Each run is there with all its rounds (`most_rounds`, if that is more) and its planned interruptions (`restarts`). The whole is
priced by the tight accountants, in whatever order the runs come and whichever of them are left out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato.data.population import Population
from sfumato.errors import BadValue, LedgerError, nearest
from sfumato.ledger.basis import Counted, PlanBasis, together
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.spending import planned_counts
from sfumato.run.prepare import prepare
from sfumato.run.request import Request
from sfumato.run.settings_text import tables_of
from sfumato.update import Layout


def store_plan(ledger: Path, file: Path) -> Ledger:
    """State the plan of a ledger in which nothing was reserved; make the ledger, if it is not there."""
    population, counts = _planned(file)
    ledger.parent.mkdir(parents=True, exist_ok=True)
    book = Ledger(ledger, population.name, population.identity)
    if book.basis is not None:
        raise LedgerError(f"{ledger} has a basis, which never changes: {book.basis.words}. Give another file.")
    book.begin(PlanBasis(tuple(counts)))
    return book


def _planned(file: Path) -> tuple[Population, Counted]:
    tables = tables_of(file)
    runs = tables.get("run")
    if set(tables) != {"run"} or not isinstance(runs, list) or not runs:
        raise BadValue(f"{file}: a plan is a list of runs, each under [[run]] with its config.")
    counts: Counted = []
    people: Population | None = None
    for run in runs:
        prepared_for, one = _run(file, run)
        if people is not None and (people.name, people.identity) != (prepared_for.name, prepared_for.identity):
            raise BadValue(
                f"{file}: runs on {people.name!r} and on {prepared_for.name!r}, or on other clients. Give each its own ledger."
            )
        people, counts = prepared_for, together(counts, one)
    assert people is not None, "there is a run"
    return people, counts


def _run(file: Path, run: Any) -> tuple[Population, Counted]:
    """The clients of one entry, and the most that all its runs cost."""
    known = ("config", "times")
    if not isinstance(run, dict) or "config" not in run:
        raise BadValue(f"{file}: a [[run]] lacks config. Name a file as for train --config.")
    if unknown := [name for name in run if name not in known]:
        raise BadValue(f"{file}: [[run]] has {unknown[0]!r}, which nothing here knows. {nearest(unknown[0], known)}")
    times = run.get("times", 1)
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise BadValue(f"{file}: times={times!r}: how many such runs there may be, at least 1.")
    request = replace(Request.from_toml(file.parent / str(run["config"])), ledger="", adaptive=False)
    prepared = prepare(request)
    if prepared.basis is not None:
        raise BadValue(
            f"{file}: {run['config']} has private-pca, whose step no plan of several runs holds yet. Leave it out."
        )
    dimension = prepared.round.local.message_length(Layout.of(prepared.module))
    derivation = prepared.round.derive(population=prepared.population.size, dimension=dimension)
    most = max(request.rounds, request.most_rounds)
    counts = planned_counts(derivation, most, request.restarts, request.checkpoint_every)
    return prepared.population, [(costs, times * count) for costs, count in counts]
