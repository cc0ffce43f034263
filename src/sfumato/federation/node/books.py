"""The node's own ledgers: one for each data set, and one for all that share its folder. Written before anything is trained.

An own answer is one reservation. A promise is one reservation for as many rounds as the server says that the run will have, and
one more whenever it says more; its run is called `promise:NAME`, and its round is the last one that it covers. What was reserved is
never taken back, so a crash, a refusal further on or an answer that never arrives can only make a ledger say more than was spent.

A server sees what a node answered before it asks again, so its ledgers are adaptive: their sums are at one Renyi order, which suits
the first run. With `basis = "plan"` in node.toml a data set is there for one run, whose terms are fixed before its first answer:
the tight accountants price that run as a whole, and what goes beyond it is refused.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.digest import digest
from sfumato.errors import BudgetExceeded, CannotAccount, LedgerError
from sfumato.federation.node.costs import Dues, Heard
from sfumato.federation.node.policy import PLAN, Policy
from sfumato.federation.node.rules import Refused
from sfumato.guarantee import default_delta
from sfumato.ledger.basis import LedgerBasis, PlanBasis, adaptive_for, together
from sfumato.ledger.ledger import PROMISE, Budget, Ledger
from sfumato.ledger.spent import Costs

_TOO_MUCH = ("refused.epsilon", "refused.total")
_UNPLANNED = "refused.plan"


@dataclass(frozen=True)
class Books:
    """The ledger of one data set, and that of all; open only while they are used, so that other processes may use them too."""

    own: Ledger
    total: Ledger
    name: str
    is_plan: bool = False

    @staticmethod
    @contextmanager
    def opened(policy: Policy, make: bool = True) -> Iterator[Books]:
        """The ledgers of a node, with the budgets of its node.toml; whatever cannot be written is refused.

        Unless they are to be made, those that are not there yet are empty ones in memory.
        """
        with unwritable():
            own = _opened(policy.place / "ledger.sqlite", policy.name, policy.budget, make)
            total = _opened(policy.folder / "total.sqlite", "all data sets", policy.total, make)
            with own.connected(), total.connected():
                yield Books(own, total, policy.name, policy.basis == PLAN)

    def heard(self, run: str) -> Heard:
        """How much of a promise is recorded."""
        found = self.own.last_of(PROMISE + run)
        return Heard() if found is None else Heard(found[0] + 1, found[1] > 0)

    def promise(self, dues: Dues, run: str, told: Heard, terms: str, seeded: bool, dry: bool = False) -> None:
        """Record as much of a promise as is not recorded yet; where it is `dry`, only refuse what there is no budget for."""
        before = self.heard(run)
        now = before.and_also(told)
        if not dues.promised or now == before:
            return
        costs = dues.of_promise(before, now)
        if dry:
            self.check(dues, costs)
            return
        name = digest("promise", self.name, run, before.count, before.anew, now.count, now.anew, terms)
        self._reserve(PROMISE + run, now.count - 1, int(now.anew), name, dues, costs, seeded)

    def promise_most(self, dues: Dues, run: str, told: Heard, rounds: int, terms: str, seeded: bool) -> None:
        """Record as much of a promise as the budgets suffice for: all, or without some rounds that were begun again, or nothing."""
        last = told.count - rounds + 1 if told.anew else 0

        def recorded(step: int, dry: bool) -> bool:
            part = Heard(rounds + step - 1, anew=True) if step else Heard(rounds)
            try:
                self.promise(dues, run, part, terms, seeded, dry)
            except Refused as refusal:
                if refusal.code in (*_TOO_MUCH, _UNPLANNED):
                    return False
                raise
            return True

        if recorded(last, dry=False):
            return
        low, high = -1, last  # it suffices for `low`, and not for `high`
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if recorded(middle, dry=True) else (low, middle)
        if low >= 0:
            recorded(low, dry=False)

    def answer(
        self, dues: Dues, run: str, round: int, attempt: int, name: str, seeded: bool, dry: bool = False
    ) -> None:
        """Record one answer, if it is new; where it is `dry`, only refuse what there is no budget for."""
        if not dues.own or self.own.holds(name):
            return
        costs = dues.of_one_answer()
        if dry:
            self.check(dues, costs)
            return
        if dues.trusting:
            self.own.note_trusting()
            self.total.note_trusting()
        self._reserve(run, round, attempt, name, dues, costs, seeded)

    def check(self, dues: Dues, costs: Costs) -> None:
        """Refuse what the budgets do not suffice for, and what goes beyond a plan; write nothing."""
        basis = self._basis(self.own, dues)
        if isinstance(basis, PlanBasis) and basis.is_exceeded(together(self.own.happened, [(costs, 1)])):
            why = (
                f'{self.name} is there for one run (basis = "plan"), and this goes beyond its terms'
                if basis.counts
                else f"the ledger of {self.name} was begun by an earlier version: what a server chooses by replies does not "
                "add up. Give the data set another name, and as its budget what is left"
            )
            raise Refused(_UNPLANNED, why)
        for ledger, code in zip((self.own, self.total), _TOO_MUCH, strict=True):
            with _within(ledger, code):
                ledger.check(costs, self._basis(ledger, dues))

    def _basis(self, ledger: Ledger, dues: Dues) -> LedgerBasis:
        """What a ledger's first reservation states, or stated: the plan is that of the terms, before their first answer."""
        if (found := ledger.basis) is not None:
            return found
        if self.is_plan and ledger is self.own:
            return PlanBasis(tuple(dues.planned))
        budget = ledger.budget or self.own.budget
        unit, delta = (min(dues.units), default_delta(None)) if budget is None else (budget.unit, budget.delta)
        return adaptive_for(dues.planned, unit, delta)

    def _reserve(self, run: str, round: int, attempt: int, name: str, dues: Dues, costs: Costs, seeded: bool) -> None:
        """In the ledger of all first: what is reserved there and nowhere else still counts there.

        The own budget is looked at before, so that what it refuses is not reserved anywhere.
        """
        self.check(dues, costs)
        facts: dict[str, Any] = {
            "run": run,
            "round": round,
            "attempt": attempt,
            "name": name,
            "costs": costs,
            "seeded": seeded,
        }
        for ledger, code in zip((self.total, self.own), reversed(_TOO_MUCH), strict=True):
            with _within(ledger, code):
                ledger.reserve(**facts, basis=self._basis(ledger, dues))


@contextmanager
def unwritable() -> Iterator[None]:
    """A full disk, or a file that cannot be written: nothing is trained that cannot be recorded."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        raise Refused("refused.full", f"the node's own files cannot be written: {error}") from error
    except (sqlite3.Error, LedgerError) as error:
        full = isinstance(error.__cause__, sqlite3.OperationalError)
        raise Refused("refused.full" if full else "refused.ledger", str(error)) from error


@contextmanager
def _within(ledger: Ledger, code: str) -> Iterator[None]:
    try:
        yield
    except (BudgetExceeded, CannotAccount):
        budget, whose = ledger.budget, ledger.fact("population")
        if budget is None:
            raise Refused(code, f"not all of what this would cost {whose} has a price") from None
        raise Refused(
            code,
            f"too little is left of epsilon {budget.epsilon:g} at delta {budget.delta:g} for each {budget.unit} of {whose}, or "
            "not all of it has a price",
        ) from None


def _opened(path: Path, name: str, budget: Budget | None, make: bool) -> Ledger:
    if make:
        private_file(path)
    ledger = Ledger(path if path.exists() else None, name, name)
    if make:
        ledger.note_node()
    wanted = budget if budget is not None and math.isfinite(budget.epsilon) else None
    if ledger.budget != wanted:
        ledger.set_budget(wanted)
    return ledger


def private_file(path: Path) -> None:
    """Make a file that only its owner reads, if it is not there; what sqlite writes beside it has the same permissions."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
