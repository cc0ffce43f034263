"""What a run does with its ledgers: its own, and one that it shares with other runs on the same population."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sfumato.account.event import Nothing, Unit, compose, why_not_private
from sfumato.data.population import Population
from sfumato.derive import Derivation, UnitDerivation
from sfumato.errors import BudgetExceeded, LedgerError
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.ledger.spent import Cost


@dataclass(frozen=True)
class Spending:
    """Reserves in every ledger before a round, and settles after it. `limits` are the run's own.

    A step that a run takes before its first round is `ahead` of it: it is round -1 of the same run in the ledgers. Where a run
    can be done in other ways than its name says (`once`), no round is ever replayed: what holds its noise already is another
    run with the same seed, and their difference has no noise at all.
    """

    own: Ledger
    shared: Ledger | None
    derivation: Derivation
    run: str
    inputs: str
    seeded: bool
    limits: tuple[Budget, ...] = ()
    ahead: bool = False
    once: bool = False
    whole: bool = False  # one reservation is for all rounds together

    def reserve(self, number: int, attempt: int, key: str) -> list[tuple[Ledger, int]]:
        """Commit one round to the shared ledger first: what is reserved there and nowhere else still counts there."""
        if self.once and any(ledger.holds(key) for ledger in self._ledgers()):
            raise LedgerError(
                "the ledger has counted this noise already: another session had the same seed on the same records, and the "
                "difference of what both release has no noise. Nothing was drawn: give another seed, or none."
            )
        anew = attempt > 0  # a later attempt draws anew, whatever an earlier one paid for
        costs = {unit: _cost(proof, number, anew) for unit, proof in self.derivation.units.items()}

        def number_in(ledger: Ledger) -> int:
            return ledger.reserve(
                run=self.run,
                round=number - self.ahead,
                attempt=attempt,
                key=key,
                inputs=self.inputs,
                costs=costs,
                seeded=self.seeded,
            )

        return [(ledger, number_in(ledger)) for ledger in self._ledgers()]

    def settle(self, reservations: list[tuple[Ledger, int]]) -> None:
        """The output of these rounds is stored."""
        for ledger in dict.fromkeys(ledger for ledger, _ in reservations):
            ledger.settle(*(reservation for of, reservation in reservations if of is ledger))

    @contextmanager
    def connected(self) -> Iterator[None]:
        """One connection to each ledger for whatever is done inside."""
        with ExitStack() as stack:
            for ledger in self._ledgers():
                stack.enter_context(ledger.connected())
            yield

    def _ledgers(self) -> list[Ledger]:
        return [self.own] if self.shared is None else [self.shared, self.own]

    def affords(self, rounds: int, start: int, attempt: int) -> bool:
        """Whether rounds `start` to `rounds` stay within the run's own limits."""
        return self._passed(rounds, start, attempt) is None

    def check(self, number: int, attempt: int, key: str) -> None:
        """Stop before the round that would pass a limit of the run; a round that was reserved before is paid for.

        What a ledger holds are the events of the plan, never who was drawn, so that a run stops there tells nothing else.
        """
        if self.own.holds(key) or (found := self._passed(number + 1, number, attempt)) is None:
            return
        limit, epsilon = found
        if self.ahead:
            raise BudgetExceeded(
                f"the step before the first round would bring epsilon{limit.whose} to {epsilon:.4g}, over the budget of "
                f"{limit.epsilon:g} at delta {limit.delta:g}. Nothing is drawn: give it more noise, or a larger budget."
            )
        done = f"{number} round{'' if number == 1 else 's'}"
        raise BudgetExceeded(
            f"round {number + 1} would bring epsilon{limit.whose} to {epsilon:.4g}, over the budget of {limit.epsilon:g} at delta "
            f"{limit.delta:g}. The run stops after {done}; what was released stays within the budget."
        )

    def _passed(self, rounds: int, start: int, attempt: int) -> tuple[Budget, float] | None:
        """The first limit that these rounds would pass, and what would be spent of it."""
        proof = self.derivation.primary
        spent = self.own.spent(proof.unit)
        event = compose(spent.world if spent else Nothing(), proof.after(rounds, start, anew=attempt > 0))
        every = ((limit, limit.spent(event)) for limit in self.limits)
        return next(((limit, epsilon) for limit, epsilon in every if epsilon > limit.epsilon), None)


def _cost(proof: UnitDerivation, number: int, anew: bool) -> Cost:
    world = proof.at(number, anew=anew)
    assert world is not None, "everyone's view has an event"
    swapped = None if proof.swapped is None else _cost(proof.swapped, number, anew)
    return Cost(proof.relation, world, proof.at(number, server=True, anew=anew), swapped)


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
