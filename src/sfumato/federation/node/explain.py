"""What a node would allow, in words: for its owner, who wrote node.toml, before anybody asks."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sfumato.account.event import Nothing, why_not_private
from sfumato.data.apart import DeclaredRecords
from sfumato.data.population import PublicData
from sfumato.errors import SfumatoError
from sfumato.federation.node.books import Books
from sfumato.federation.node.costs import Dues, Heard
from sfumato.federation.node.own_data import Loaded, own_data
from sfumato.federation.node.policy import ANY, LIBRARY, PLAN, SUFFICES, Policy
from sfumato.federation.node.rules import Refused, judged
from sfumato.federation.terms import Terms, declared_example
from sfumato.guarantee import rounded_up
from sfumato.ledger.ledger import Budget, Ledger

_SHOWN = 5  # records that count as zero


def explain(policy: Policy, books: Books) -> str:
    """What node.toml allows, and what its budgets have left."""
    return "\n".join(_sentences(policy, books))


def would(policy: Policy, terms: Terms, books: Books, public: PublicData | None = None) -> list[tuple[str, str]]:
    """Everything for which a run of these terms would be refused at its first round: a code and a sentence; nothing, if it is
    allowed. Spends nothing.
    """
    agreement, refusals = judged(policy, terms, public)
    found = [(refusal.code, refusal.words) for refusal in refusals]
    if agreement is None or policy.budget is None:
        return found
    dues = Dues.of(agreement, policy.client)
    try:
        books.promise(dues, terms.run, Heard(terms.rounds), "", seeded=False, dry=True)
        books.answer(dues, terms.run, 0, 0, "", seeded=False, dry=True)
    except Refused as refusal:
        found.append((refusal.code, refusal.words))
    return found


def _sentences(policy: Policy, books: Books) -> Iterator[str]:
    yield f"client {policy.client}, with the data set {policy.name!r}: {_found(policy)}"
    yield f"records: {_declared(policy.records)}"
    if not policy.recipes:
        yield "recipes: none, so everything is refused until [allow] lists some in node.toml"
    elif ANY in policy.recipes:
        yield "recipes: any, and rounds that are no recipe"
    else:
        yield f"recipes: {', '.join(policy.recipes)}"
    yield f"models: {_named(policy.models)}"
    yield f"features: {_named(policy.features)}"
    yield f"noise multiplier: at least {policy.smallest_noise:g}"
    yield f"cohort: at least {policy.smallest_cohort} expected clients"
    often = "as often as it is asked" if policy.rounds_per_day is None else f"{policy.rounds_per_day} in 24 hours"
    yield f"rounds: {often}"
    yield (
        "a server's promise to add noise, or to follow the protocol of a secure sum: suffices; nothing is proven against one that "
        "breaks it"
        if policy.promise == SUFFICES
        else "a server's promise to add noise, or to follow the protocol of a secure sum: does not suffice, so only what is "
        "private when it leaves is allowed"
    )
    begun = books.own.basis
    if begun is not None:
        yield f"accounting: {begun.words}"
    elif policy.basis == PLAN:
        yield "accounting: one run, whose terms are the plan; what goes beyond them is refused"
    else:
        yield "accounting: any runs, at one Renyi order that suits the first"
    allowed = {
        "runs that prove nothing": policy.unproven,
        "runs that hide nothing": policy.nonprivate,
        "noise that the server itself draws for this node (for tests only)": policy.shared_keys,
    }
    yield from (f"{what}: allowed" for what, is_allowed in allowed.items() if is_allowed)
    if policy.budget is None:
        yield f"budget: none stated, so everything is refused until node.toml has [allow.data.{policy.name}]"
    else:
        yield f"budget of {policy.name!r}: {_spent(policy.budget, books.own)}"
    if policy.total is not None:
        yield f"budget of all data sets in {policy.folder}: {_spent(policy.total, books.total)}"


def _found(policy: Policy) -> str:
    """Where the records are, and which of them count as zero."""
    declared = policy.records
    try:
        find = own_data(policy.data)
        if declared is None:
            find()
            return policy.data
        shapes = declared.input_shape, declared.input_type, declared.target_shape, declared.target_type
        records, faults = Loaded(find, policy.data)(declared, "", declared_example(*shapes))
    except SfumatoError as error:
        return f"not found. {error}"
    bad = [f"record {number} counts as zero: {why}" for number, why in sorted(faults.records.items())]
    more = [f"and {len(bad) - _SHOWN} more such"] if len(bad) > _SHOWN else []
    return "; ".join([f"{policy.data}, {records.count} records", *bad[:_SHOWN], *more])


def _declared(declared: DeclaredRecords | None) -> str:
    if declared is None:
        return "none declared, so everything is refused until node.toml has a table [records]"
    x, y = ("x".join(map(str, shape)) or "a number" for shape in (declared.input_shape, declared.target_shape))
    return (
        f"{declared.task} with {declared.outputs} outputs; inputs {x} of {declared.input_type}, targets {y} of "
        f"{declared.target_type}"
    )


def _named(names: tuple[str, ...]) -> str:
    others = [name for name in names if name != LIBRARY]
    return ", ".join([*(["the library's own"] if LIBRARY in names else []), *others]) or "none"


def _spent(budget: Budget, ledger: Ledger) -> str:
    if not math.isfinite(budget.epsilon):
        return f"no limit; {ledger.count} reservations so far"
    limit = f"epsilon {budget.epsilon:g} at delta {budget.delta:g} for each {budget.unit}"
    cost = ledger.spent(budget.unit)
    if ledger.count and (cost is None or why_not_private(cost.world) is not None):
        return f"{limit}, of which what is not proven was spent, so nothing is left"
    spent = budget.spent(Nothing() if cost is None else cost.world, by=ledger.price)
    return f"{limit}, of which {rounded_up(spent, 4) if spent else '0'} was spent in {ledger.count} reservations"
