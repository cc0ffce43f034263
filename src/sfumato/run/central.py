"""Runs of a recipe with one holder of all records: what such a run has no use for, and how many records there are."""

from __future__ import annotations

from dataclasses import replace

from sfumato import recipes
from sfumato.account.event import Relation
from sfumato.data.population import Population
from sfumato.errors import BadValue
from sfumato.pieces.sampler import parse_sampler
from sfumato.run.request import Request


def check_central(request: Request, own_data: bool) -> None:
    """Refuse what means nothing where there is one holder, by what is asked alone."""
    data, name = request.data, request.recipe
    recipes.check_clients(name, data.clients)
    if data.split != "iid":
        raise BadValue(
            f"split={data.split!r}: in {name} one holder has all the records, so none are shared out. Leave it out."
        )
    if request.budgets:
        raise BadValue(
            f"budgets: in {name} one holder has all the records, and one budget holds for each. Give --epsilon."
        )
    records = request.options.get("records", 1)
    if isinstance(records, int) and records < 1:
        raise BadValue(f"records={records}: how many records the holder has, at least 1. It is declared and public.")
    if own_data and "records" not in request.options:
        raise BadValue(
            f"--data {data.name}: how many records has it? Declare it with --records: it is public, and not counted."
        )


def declared(request: Request, population: Population) -> Request:
    """The request with the number of records of a data set known by name, as anybody can count it: it is published.

    Of a user's own data nothing is counted: their number is declared. Batches of a fixed size are drawn from at least so many,
    also without any one of them where records come and go: so one fewer is declared there.
    """
    if "records" in request.options:
        return request
    batch, relation = (str(request.options.get(name, "")) for name in ("batch", "relation"))
    may_go = (
        batch.startswith("fixed") and parse_sampler(batch, relation, option="batch").relation is Relation.ADD_REMOVE
    )
    records = population.client(0).train.count - may_go
    return replace(request, options={**request.options, "records": records})


def held_together(population: Population) -> Population:
    """The one holder of all records, which stay in memory."""
    return (population if population.size == 1 else population.joined()).kept()
