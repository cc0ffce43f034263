"""When each client stops, where a ledger that runs share has a budget for it alone."""

from __future__ import annotations

from dataclasses import replace

from sfumato.account.calibrate import most_rounds
from sfumato.account.event import Event, Nothing, compose
from sfumato.account.inside import each_client, for_client, places_of
from sfumato.account.protocol import Accountant
from sfumato.derive import UnitDerivation
from sfumato.errors import BudgetExceeded, UnsoundRound
from sfumato.ledger.basis import PlanBasis
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.pieces.presence import PoissonPerClient, Presence
from sfumato.pieces.sampler import Everyone, Poisson
from sfumato.round import Round


def stopping(
    round: Round, ledger: Ledger, rounds: int, population: int, dimension: int, by: Accountant | None = None
) -> Round:
    """The round in which each client stops, for good, before the round that its own line of the ledger cannot pay for.

    When it stops is computed before the first round, from what all runs in the ledger were planned to cost and from nothing
    that depends on data or on who was drawn: whoever sees it stop learns nothing that the plans do not tell. Cohorts of a
    fixed size stay as they are, since a client that stops would change the others' chances: there, where relations or units
    differ, and where noise shares or a shuffler count on everybody, the ledger stops the whole run instead. In a ledger with a
    plan the runs are as the plan has them.
    """
    sample, lines, basis = round.sample, ledger.own_budgets, ledger.basis
    if isinstance(basis, PlanBasis) and basis.counts:
        return round
    if not lines or not isinstance(sample, Poisson | Everyone | PoissonPerClient):
        return round
    proof = round.derive(population=population, dimension=dimension).primary
    spent = ledger.spent(proof.unit)
    other_unit = any(line.unit is not proof.unit for line in lines)
    if other_unit or (spent is None and ledger.count) or (spent is not None and spent.relation is not proof.relation):
        return round
    if not isinstance(sample, PoissonPerClient):
        sample = PoissonPerClient(Presence(sample.rate if isinstance(sample, Poisson) else 1.0), (), sample.relation)
    price = by or ledger.price
    lasts = _lasts(lines, Nothing() if spent is None else spent.world, proof, rounds, population, price)
    if not any(lasts.values()):
        raise BudgetExceeded(f"no client has anything left of its own budget in {ledger.path}. Use another ledger.")
    if min(lasts.values()) == rounds:
        return round
    default = _until(sample.default, lasts.pop(None, rounds), rounds)
    own = {
        client: _until(sample.of(client), lasts.get(client, rounds), rounds)
        for client in {*lasts, *(client for who in sample.named for client in who)}
        if client is not None
    }
    try:
        stopped = replace(round, sample=replace(sample, default=default, own=own))
        after = stopped.derive(population=population, dimension=dimension).primary
    except UnsoundRound:
        return round
    return stopped if set(each_client(after.world)) <= set(each_client(proof.world)) else round


def _until(presence: Presence, last: int, rounds: int) -> Presence:
    """The same presence, ended by its last round if that comes before the end."""
    if last == rounds:
        return presence
    return replace(presence, rounds=last if presence.rounds is None else min(last, presence.rounds))


def _lasts(
    lines: tuple[Budget, ...], before: Event, proof: UnitDerivation, rounds: int, population: int, price: Accountant
) -> dict[int | None, int]:
    """How many rounds each client's line pays for, by its number; None stands for those whom nothing tells apart."""
    own = {client: line for line in lines for client in line.clients or ()}
    usual = next((line for line in lines if line.clients is None), None)
    places = places_of(before, proof.after(rounds))
    known: dict[tuple[Budget | None, tuple[tuple[int, int], ...]], int] = {}
    found: dict[int | None, int] = {}
    told_apart = {client for client in (*own, *places) if client < population}
    others: list[int | None] = [None] if len(told_apart) < population else []
    for client in [*others, *sorted(told_apart)]:
        line = usual if client is None else own.get(client, usual)
        kind = (line, () if client is None else places.get(client, ()))
        if kind not in known:
            known[kind] = rounds if line is None else _last(line, before, proof, rounds, client, price)
        found[client] = known[kind]
    return found


def _last(
    line: Budget, before: Event, proof: UnitDerivation, rounds: int, client: int | None, price: Accountant
) -> int:
    def event(count: int) -> Event:
        return for_client(compose(before, proof.after(count)), client)

    return most_rounds(event, line.epsilon, line.delta, rounds, price)
