"""The basis of a ledger: which sum of costs is proven, whatever was chosen after the first output (PRIVACY R13).

A ledger's basis is written with its first reservation and never changes. There are two:

  plan      the most often that each cost may occur, attempts included. The tight accountants price all of it, and that is what
            counts from the first reservation on: order and leaving things out are free, and stopping early lowers nothing.
  adaptive  one Renyi order. The sum of divergences at it holds at every stop, whatever was chosen from earlier outputs.

Never both, and never the smaller: which of two numbers is smaller may depend on outputs, so to take it is one more choice.
A plan can be exceeded. Then it is priced over all that happened, which is proven only if no output decided that.
A ledger of an earlier version has reservations and no basis: that is an empty plan, which all that it holds exceeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sfumato.account.adaptive import AtOrder, order_for
from sfumato.account.auto import Auto
from sfumato.account.event import Event, Unit, why_not_private
from sfumato.account.inside import costs_nothing
from sfumato.account.protocol import Accountant
from sfumato.ledger.spent import Costs, total

Counted: TypeAlias = list[tuple[Costs, int]]  # costs, and how often each occurs

EXCEEDED = "what was released did not decide that more happened than was planned before the first round"
FROM_RELEASES = (
    "what was chosen after the first release (noise, rounds, further runs) was chosen from what the observer sees: not from "
    "diagnostics, cohorts, drop-outs or private validation data"
)
_ANY_ORDER = 8.0  # where nothing that a first run does has a cost; every order that is fixed before is proven


@dataclass(frozen=True)
class PlanBasis:
    """The most often that each cost may occur, before anything is released."""

    counts: tuple[tuple[Costs, int], ...] = ()

    @property
    def price(self) -> Accountant:
        """What prices all that is accounted for."""
        return Auto()

    def accounted(self, happened: Counted) -> Counted:
        """What is priced: of each cost as many as were planned, or as happened if that is more."""
        most = {costs.digest: (costs, times) for costs, times in self.counts}
        for costs, times in happened:
            planned = most.get(costs.digest, (costs, 0))[1]
            most[costs.digest] = costs, max(planned, times)
        return list(most.values())

    def is_exceeded(self, happened: Counted) -> bool:
        """Whether something occurred more often than was planned; what costs nothing may occur at will."""
        most = {costs.digest: times for costs, times in self.counts}
        return any(times > most.get(costs.digest, 0) for costs, times in happened if not costs.is_nothing)

    def assumptions(self, happened: Counted) -> tuple[str, ...]:
        """What must hold for the price to be proven."""
        return (EXCEEDED,) if self.is_exceeded(happened) else ()

    @property
    def words(self) -> str:
        """What is said of it where a ledger is listed."""
        if not self.counts:
            return "an empty plan: the number of rounds is assumed not to depend on outputs"
        return f"a plan of at most {sum(times for _, times in self.counts):,} reservations, priced as a whole"

    def written(self) -> str:
        """The value of the fact that states it; the costs are in the ledger's own table, under their digests."""
        return json.dumps({"plan": [[costs.digest, times] for costs, times in self.counts]})


@dataclass(frozen=True)
class AdaptiveBasis:
    """One Renyi order, before anything is released."""

    order: float

    @property
    def price(self) -> Accountant:
        """What prices all that is accounted for."""
        return AtOrder(self.order)

    def accounted(self, happened: Counted) -> Counted:
        """What is priced: what happened."""
        return happened

    def is_exceeded(self, happened: Counted) -> bool:
        """Never: there is no number of rounds to exceed."""
        return False

    def assumptions(self, happened: Counted) -> tuple[str, ...]:
        """What must hold for the price to be proven."""
        return (FROM_RELEASES,) if happened else ()

    @property
    def words(self) -> str:
        """What is said of it where a ledger is listed."""
        return f"adaptive, Renyi order {self.order:.6g}: the sum holds at every stop, whatever was chosen from releases"

    def written(self) -> str:
        """The value of the fact that states it."""
        return json.dumps({"order": self.order})


LedgerBasis: TypeAlias = PlanBasis | AdaptiveBasis


def basis_from(written: str, costs: Mapping[str, Costs]) -> LedgerBasis:
    """What `written` wrote, with the costs of the ledger by their digests."""
    found: dict[str, Any] = json.loads(written)
    if "order" in found:
        return AdaptiveBasis(float(found["order"]))
    return PlanBasis(tuple((costs[digest], int(times)) for digest, times in found["plan"]))


def adaptive_for(planned: Iterable[tuple[Costs, int]], unit: Unit, delta: float) -> AdaptiveBasis:
    """The basis whose order suits what a first run is to do; an event without a bound is refused by name."""
    cost = total(planned, unit)
    return AdaptiveBasis(_ANY_ORDER if cost is None else _order(cost.world, delta))


def _order(event: Event, delta: float) -> float:
    return _ANY_ORDER if costs_nothing(event) or why_not_private(event) is not None else order_for(event, delta)


def together(one: Iterable[tuple[Costs, int]], other: Iterable[tuple[Costs, int]]) -> Counted:
    """How often each cost occurs in both."""
    found: dict[str, tuple[Costs, int]] = {}
    for costs, times in (*one, *other):
        found[costs.digest] = costs, found.get(costs.digest, (costs, 0))[1] + times
    return list(found.values())
