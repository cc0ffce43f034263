"""The clients that a request asks for; and the same in another process, from the request's text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfumato import recipes
from sfumato.data.load import NAMES
from sfumato.data.population import Population
from sfumato.data.tables import is_table
from sfumato.errors import BadValue
from sfumato.features import Features, Parted, PrivatePCA, parse_features
from sfumato.guarantee import check_delta
from sfumato.imports import is_import_path
from sfumato.planning.auto import Choice
from sfumato.run.auto import Auto, chosen
from sfumato.run.central import check_central, declared, held_together
from sfumato.run.mapped_source import with_features, with_steps
from sfumato.run.request import Request
from sfumato.run.source import Source, find_source, is_own_data


def settled(
    request: Request, auto: Auto | None, open_to_all: bool = False, elsewhere: Population | None = None
) -> tuple[Request, Source, tuple[Choice, ...]]:
    """The request with everything that was left open, where its data come from, and what was chosen for the user."""
    request.require_named("simulate(round, population, module, objective, ...).")
    if request.federation and elsewhere is None:
        raise BadValue("this is the run of a federation, whose data are with their owners: use sfumato server.")
    central, own_data = request.central, is_own_data(request.data.name)
    if central:
        check_central(request, own_data)
    name = request.data.name
    if request.data.clients < 1 and (is_import_path(name) or Path(name).is_dir()) and not is_table(name):
        raise BadValue(
            f"--data {name}: how many clients has it? Declare it with --clients: it is public, and not counted."
        )
    if request.data.clients < 1 and name in NAMES:
        raise BadValue(f"clients={request.data.clients}: at least 1.")
    domain = request.pieces is not None or recipes.find(request.recipe).takes_public
    known: dict[str, Any] = {"joined": central, "open_to_all": open_to_all, "unscaled": auto is not None}
    source = find_source(request.data, domain=domain, elsewhere=elsewhere, **known)
    if is_table(name) and not central and elsewhere is None:
        assert source.population is not None, "a table is a population"
        counted = source.population.counted
        request = replace(request, data=replace(request.data, clients=source.population.size, counted=counted))
    if central and not own_data:
        request = declared(request, source.of(request.data))
    if not request.budgets or request.delta is not None:
        check_delta(request.chosen_delta)
    if auto is None:
        return request, source, ()
    request, choices = chosen(request, source, auto)
    return request, source, choices


def before_a_basis(request: Request, source: Source) -> tuple[Source, Parted]:
    """All records mapped, but for a basis that is learnt within the run and what stands behind it."""
    parted = Parted.of(request.data.features)
    return with_features(replace(request.data, features=parted.before), source), parted


def clients_of(request: Request, source: Source, basis: PrivatePCA | None = None) -> Population:
    """The clients of a request; the one holder, where there is one. `basis` is the one that their records were mapped by."""
    population = source.of(request.data)
    population = held_together(population) if request.central else population
    return replace(population, origin=Asked.of(request, basis))


@dataclass(frozen=True)
class Asked:
    """Clients as a request asks for them, wherever their data lie: names and settings, and a basis that was released."""

    text: str
    basis: PrivatePCA | None = None

    @staticmethod
    def of(request: Request, basis: PrivatePCA | None = None) -> Asked:
        """What decides who the clients are. Nothing else is told: a seed would give the noise away."""
        same = Request(recipe=request.recipe, pieces=request.pieces, delta=request.delta, data=request.data)
        return Asked(replace(same, options=request.options).to_toml(), basis)

    def build(self) -> Population:
        """Load the data here."""
        request, source, _ = settled(Request.from_text(self.text, "what a worker was asked"), None)
        source, parted = before_a_basis(request, source)
        if self.basis is not None:
            after = () if parted.after is None else parse_features(parted.after).steps
            source = with_steps(source, Features((self.basis, *after)))
        return clients_of(request, source, self.basis)
