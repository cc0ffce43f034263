"""What a run does with its ledgers: its own, and one that it shares with other runs on the same population."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sfumato.account import accountant
from sfumato.account.event import Nothing, Repeated, Unit, compose, why_not_private
from sfumato.derive import Derivation
from sfumato.errors import BudgetExceeded, LedgerError
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.spent import Cost


@dataclass(frozen=True)
class Spending:
    """Reserves in every ledger before a round, and settles after it. `budget` is the run's own (epsilon, delta)."""

    own: Ledger
    shared: Ledger | None
    derivation: Derivation
    run: str
    inputs: str
    seeded: bool
    budget: tuple[float, float] | None = None

    def reserve(self, number: int, attempt: int, key: str) -> list[tuple[Ledger, int]]:
        """Commit one round to the shared ledger first: what is reserved there and nowhere else still counts there."""
        due = 0 if attempt else number  # a later attempt draws anew, whatever an earlier one paid for
        costs = {}
        for unit, proof in self.derivation.units.items():
            world = proof.at(due)
            assert world is not None, "everyone's view has an event"
            costs[unit] = Cost(proof.relation, world, proof.at(due, server=True))
        ledgers = [self.own] if self.shared is None else [self.shared, self.own]
        return [
            (
                ledger,
                ledger.reserve(
                    run=self.run,
                    round=number,
                    attempt=attempt,
                    key=key,
                    inputs=self.inputs,
                    costs=costs,
                    seeded=self.seeded,
                ),
            )
            for ledger in ledgers
        ]

    def settle(self, reservations: list[tuple[Ledger, int]]) -> None:
        """The round's output is stored."""
        for ledger, reservation in reservations:
            ledger.settle(reservation)

    def close(self) -> None:
        """Let go of the ledgers."""
        for ledger in (self.own, self.shared):
            if ledger is not None:
                ledger.close()

    def affords(self, rounds: int, start: int, attempt: int) -> bool:
        """Whether rounds `start` to `rounds` stay within the run's own budget."""
        return self.budget is None or self._epsilon(rounds, start, attempt) <= self.budget[0]

    def check(self, number: int, attempt: int, key: str) -> None:
        """Stop before the round that would pass the run's own budget; a round that was reserved before is paid for."""
        if self.budget is None or self.own.holds(key) or self.affords(number + 1, number, attempt):
            return
        epsilon = self._epsilon(number + 1, number, attempt)
        raise BudgetExceeded(
            f"round {number + 1} would bring epsilon to {epsilon:.4g}, over the budget of {self.budget[0]:g} at delta "
            f"{self.budget[1]:g}. The run stops after {number} rounds; what was released stays within the budget."
        )

    def _epsilon(self, rounds: int, start: int, attempt: int) -> float:
        assert self.budget is not None
        proof = self.derivation.primary
        spent = self.own.spent(proof.unit)
        further = Repeated(proof.world, rounds - start) if attempt and rounds > start else proof.after(rounds, start)
        return accountant("auto").epsilon(compose(spent.world if spent else Nothing(), further), self.budget[1])


def open_shared(path: Path | None, population: str, derivation: Derivation, seeded: bool, force: bool) -> Ledger | None:
    """The shared ledger, if this run may write to it."""
    if path is None:
        return None
    world = derivation.units.get(Unit.CLIENT, derivation.primary).world
    reason = (
        "it hides nothing" if why_not_private(world) is not None else "its noise comes from a seed" if seeded else ""
    )
    if reason and not force:
        raise LedgerError(
            f"{path} is shared by private runs, and {reason}: this run would spoil its sum. Leave --ledger out, or give "
            "--force-ledger to record the run as what it is."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    return Ledger(path, population)
