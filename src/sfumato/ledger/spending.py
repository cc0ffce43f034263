"""What a run does with its ledgers: its own, and one that it shares with other runs on the same population."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sfumato.account.adaptive import FittedOrder
from sfumato.account.event import Nothing, Unit, why_not_private
from sfumato.account.protocol import Accountant, accountant
from sfumato.data.population import Population
from sfumato.derive import Derivation, UnitDerivation
from sfumato.errors import BudgetExceeded, LedgerError
from sfumato.ledger.basis import AdaptiveBasis, Counted, LedgerBasis, PlanBasis
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.ledger.spent import Cost, Costs, total


@dataclass(frozen=True)
class Spending:
    """Reserves in every ledger before a round, and settles after it. `limits` are the run's own.

    A step that a run takes before its first round is `ahead` of it: it is round -1 of the same run in the ledgers. `since` is the
    round at which this start of the run began, and `attempt` how many rounds were begun before it and never stored. Where one
    `run` may be reserved `once` only, what a ledger holds of it already is another run with the same seed. `basis` is what its
    first reservation states, of a ledger in which nothing was reserved before.
    """

    own: Ledger
    shared: Ledger | None
    derivation: Derivation
    run: str
    seeded: bool
    limits: tuple[Budget, ...] = ()
    ahead: bool = False
    since: int = 0
    attempt: int = 0
    once: bool = False
    basis: LedgerBasis | None = None
    _costs: dict[tuple[object, ...], Costs] = field(default_factory=dict, init=False, repr=False, compare=False)

    def reserve(self, number: int, name: str | None) -> list[tuple[Ledger, int]]:
        """Commit one round to the shared ledger first: what is reserved there and nowhere else still counts there.

        `name` is that of noise which can be drawn again, as a seeded run's can.
        """
        if self.once and name is not None and any(ledger.holds(name) for ledger in self._ledgers()):
            raise LedgerError(
                "the ledger has counted this noise already: another session had the same seed on the same records, and the "
                "difference of what both release has no noise. Nothing was drawn: give another seed, or none."
            )
        costs = self.costs(number)

        def reserved_in(ledger: Ledger) -> int:
            return ledger.reserve(
                run=self.run,
                round=number - self.ahead,
                costs=costs,
                attempt=self.attempt,
                name=name,
                seeded=self.seeded,
                basis=self.basis_of(ledger),
            )

        return [(ledger, reserved_in(ledger)) for ledger in self._ledgers()]

    def basis_of(self, ledger: Ledger) -> LedgerBasis | None:
        """What the first reservation in a ledger states: in the run's own the same order as in the one that it shares."""
        if ledger is self.own and self.shared is not None and isinstance(self.shared.basis, AdaptiveBasis):
            return self.shared.basis
        return self.basis

    def costs(self, number: int) -> Costs:
        """What a round costs each unit; computed once for all rounds that cost the same."""
        kind = tuple(proof.kind_of(number, self.since) for proof in self.derivation.units.values())
        if kind not in self._costs:
            self._costs[kind] = costs_of(self.derivation, number, self.since)
        return self._costs[kind]

    def settle(self, reservations: list[tuple[Ledger, int]], store: Callable[[list[int]], None] | None = None) -> None:
        """State that the output of these rounds is stored; `store` does so, and settles those of the run's own ledger."""
        own, others = (
            [number for ledger, number in reservations if (ledger is self.own) is is_own] for is_own in (True, False)
        )
        if store is None:
            self.own.settle(self.run, *own)
        else:
            store(own)
        if self.shared is not None:
            self.shared.settle(self.run, *others)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """One connection to each ledger for whatever is done inside."""
        with ExitStack() as stack:
            for ledger in self._ledgers():
                stack.enter_context(ledger.connected())
            yield

    def _ledgers(self) -> list[Ledger]:
        return [self.own] if self.shared is None else [self.shared, self.own]

    def affords(self, rounds: int, start: int) -> bool:
        """Whether rounds `start` to `rounds` stay within the run's own limits."""
        return self._passed(rounds, start) is None

    def check(self, number: int) -> None:
        """Stop before the round that would pass a limit of the run.

        What a ledger holds are the events of the plan, never who was drawn, so that a run stops there tells nothing else.
        """
        if (found := self._passed(number + 1, number)) is None:
            return
        limit, epsilon = found
        if self.ahead:
            raise BudgetExceeded(
                f"the step before the first round would bring epsilon{limit.whose} to {epsilon:.4g}, over the budget of "
                f"{limit.epsilon:g} at delta {limit.delta:g}. Nothing is drawn: give it more noise, or a larger budget."
            )
        done = f"{number} round{'' if number == 1 else 's'}"
        again = f" Rounds that were interrupted count: {self.interrupted(number)}." if self.interrupted(number) else ""
        raise BudgetExceeded(
            f"round {number + 1} would bring epsilon{limit.whose} to {epsilon:.4g}, over the budget of {limit.epsilon:g} at delta "
            f"{limit.delta:g}.{again} The run stops after {done}; what was released stays within the budget."
        )

    def interrupted(self, number: int) -> int:
        """How many rounds, or steps ahead of them, were begun and never stored, where so many are."""
        steps = self.own.count - self.own.rounds
        return max(0, self.own.rounds - number) + max(0, steps - 1)

    def _passed(self, rounds: int, start: int) -> tuple[Budget, float] | None:
        """The first limit that these rounds would pass, and what would be spent of it."""
        if not self.limits:
            return None
        basis = self.own.basis or self.basis_of(self.own) or PlanBasis()
        spent = self.own.spent_with(
            counts_of(self.derivation, rounds, start, self.since), self.derivation.primary.unit, basis
        )
        event = spent.world if spent else Nothing()
        every = ((limit, limit.spent(event, by=basis.price)) for limit in self.limits)
        return next(((limit, epsilon) for limit, epsilon in every if epsilon > limit.epsilon), None)


def costs_of(derivation: Derivation, number: int, since: int = 0) -> Costs:
    """What one round costs each unit, by its number."""
    return Costs({unit: _cost(proof, number, since) for unit, proof in derivation.units.items()})


def _cost(proof: UnitDerivation, number: int, since: int) -> Cost:
    world = proof.at(number, since=since)
    assert world is not None, "everyone's view has an event"
    swapped = None if proof.swapped is None else _cost(proof.swapped, number, since)
    return Cost(proof.relation, world, proof.at(number, server=True, since=since), swapped)


def counts_of(derivation: Derivation, rounds: int, start: int = 0, since: int = 0) -> Counted:
    """What rounds `start` to `rounds` cost each unit: each cost, and how often it is due."""
    proofs = derivation.units.values()
    if all(proof.is_steady for proof in proofs):
        return [(costs_of(derivation, start, since), rounds - start)] if rounds > start else []
    first: dict[tuple[object, ...], int] = {}
    times: Counter[tuple[object, ...]] = Counter()
    for number in range(start, rounds):
        kind = tuple(proof.kind_of(number, since) for proof in proofs)
        first.setdefault(kind, number)
        times[kind] += 1
    return [(costs_of(derivation, first[kind], since), count) for kind, count in times.items()]


def planned_counts(derivation: Derivation, rounds: int, restarts: int = 0, checkpoint_every: int = 1) -> Counted:
    """The most that so many rounds can cost with so many interruptions, before the first of them."""
    again = max(proof.again(restarts, checkpoint_every) for proof in derivation.units.values())
    counts = counts_of(derivation, rounds)
    return [(costs, times if costs.is_nothing else times + again) for costs, times in counts]


def affordable(planned: Callable[[int], Counted], rounds: int, unit: Unit, limits: tuple[Budget, ...]) -> int:
    """So many rounds, or as many as a run's own budgets suffice for if they are planned: known before the first of them."""

    def within(count: int) -> bool:
        cost = total(planned(count), unit)
        return cost is None or all(limit.spent(cost.world) <= limit.epsilon for limit in limits)

    if not limits or within(rounds):
        return rounds
    low, high = 0, rounds - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if within(middle) else (low, middle - 1)
    return low


def basis_for(
    own: Ledger, shared: Ledger | None, plan: Callable[[], PlanBasis], adaptive: Callable[[], AdaptiveBasis] | None
) -> LedgerBasis:
    """The basis that a run's first reservation states where there is none: that of the ledger that it shares.

    A run alone is a plan, and so is one within the plan of the ledger that it shares, unless it is to be `adaptive`.
    """
    if (found := own.basis) is not None:
        return found
    if shared is not None and (theirs := shared.basis) is not None:
        return theirs if isinstance(theirs, AdaptiveBasis) else plan()
    return plan() if adaptive is None else adaptive()


def price_before(shared: Path | None, adaptive: bool, delta: float) -> Accountant:
    """What prices a run that is about to begin, as its ledger will.

    By the basis of its shared ledger, if that has one; at the order that suits the run, if it is adaptive or begins a shared
    ledger; else by the tight accountants, for a plan.
    """
    known = None if shared is None or not shared.exists() else Ledger(shared, None).basis
    if known is not None:
        return known.price
    return FittedOrder(delta) if adaptive or shared is not None else accountant("auto")


def open_shared(
    own: Ledger, given: Path | None, run: str, population: Population, derivation: Derivation, seeded: bool, force: bool
) -> Ledger | None:
    """The ledger that a run shares with others: the one that it began with, wherever that is now, or a given one.

    The run's own ledger remembers it, so that going on without naming it still tells it what is spent.
    """
    if own.shared is not None:
        shared = _remembered(*own.shared, given, own, run, population)
    elif given is None:
        return None
    else:
        _check_welcome(given, own, derivation, seeded, force)
        given.parent.mkdir(parents=True, exist_ok=True)
        shared = Ledger(given, population.name, population.identity)
    if any(isinstance(one, int) and one != place for place, one in enumerate(population.ids)):
        shared.note_other_numbers()
    own.remember_shared(shared)
    return shared


def _remembered(path: Path, name: str, given: Path | None, own: Ledger, run: str, population: Population) -> Ledger:
    place = next((place for place in (given, path) if place is not None and place.exists()), None)
    if place is None:
        raise LedgerError(
            f"the run of {own.path} spends from the shared ledger {path}, which is not there. Put it back, or say where it is "
            "now with shared_ledger=, in Python."
        )
    found = Ledger(place, None)
    if found.id != name:
        raise LedgerError(
            f"{place} is another ledger ({found.id[:8]}) than the one that the run of {own.path} spends from ({name[:8]}, last at "
            f"{path}). Put that one back, or say where it is now with shared_ledger=, in Python."
        )
    if (missing := own.count - found.count_of(run)) > 0:
        raise LedgerError(
            f"{place} lacks {missing} of the {own.count} rounds that the run of {own.path} has behind it, so it is an older copy. "
            "Restore the newest one, with its -wal file if there is one."
        )
    return Ledger(place, population.name, population.identity)


def _check_welcome(path: Path, own: Ledger, derivation: Derivation, seeded: bool, force: bool) -> None:
    if own.count:
        raise LedgerError(
            f"{path} does not hold the {own.count} rounds that the run of {own.path} has behind it: it began without that ledger. "
            "Go on without --ledger, or start a new run with it."
        )
    world = derivation.units.get(Unit.CLIENT, derivation.primary).world
    hides = why_not_private(world) is None
    if (seeded or not hides) and not force:
        reason = "its noise comes from a seed" if hides else "it hides nothing"
        raise LedgerError(
            f"{path} is shared by private runs, and {reason}: this run would spoil its sum. Leave --ledger out, or give "
            "--force-ledger to record the run as what it is."
        )
