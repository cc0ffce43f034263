"""A guarantee is a pure function of what was spent, an accountant and delta; it reads as a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato.account import accountant
from sfumato.account.event import Event, NonPrivate, Relation, Unit
from sfumato.errors import BadValue

_NEIGHBOURS = {
    Relation.ADD_REMOVE: "one {unit} being there or not",
    Relation.REPLACE: "one {unit}'s data being swapped for any other",
    Relation.ZERO_OUT: "one {unit}'s contribution being replaced by nothing",
}


@dataclass(frozen=True)
class Guarantee:
    """What is proven for one unit in one view, and under which assumptions. `epsilon` is None where nothing is proven."""

    epsilon: float | None
    delta: float
    unit: Unit
    relation: Relation
    view: str
    accountant: str
    mechanism: str
    assumptions: tuple[str, ...] = ()
    unproven: str = ""

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"No proven guarantee against {self.view}: {self.unproven}."
        change = _NEIGHBOURS[self.relation].format(unit=self.unit)
        assuming = f" Assuming: {'; '.join(self.assumptions)}." if self.assumptions else ""
        return (
            f"({self.epsilon:.4g}, {self.delta:.3g})-differential privacy for each {self.unit} against {self.view}: {change} "
            f"changes the chance of anything that they see by at most a factor of e^{self.epsilon:.4g}, but for a chance of "
            f"{self.delta:.3g} ({self.relation.replace('_', '/')}; {self.mechanism}; accountant: {self.accountant}).{assuming}"
        )


def check_delta(delta: float) -> float:
    """Delta, if it is one."""
    if not 0.0 < delta < 1.0:
        raise BadValue(
            f"delta={delta}: a probability above 0 and below 1 is needed; below one over the population, e.g. 1e-5."
        )
    return delta


def guarantee(
    event: Event | None,
    delta: float,
    *,
    unit: Unit,
    relation: Relation,
    view: str,
    assumptions: tuple[str, ...] = (),
    accountant_name: str = "auto",
    unproven: str = "",
) -> Guarantee:
    """The guarantee for what happened."""
    check_delta(delta)
    if event is None or isinstance(event, NonPrivate):
        why = unproven or (event.reason if isinstance(event, NonPrivate) else "it sees the messages before any noise")
        return Guarantee(None, delta, unit, relation, view, accountant_name, "", (), why)
    chosen = accountant(accountant_name)
    epsilon = chosen.epsilon(event, delta)
    if not math.isfinite(epsilon):
        return Guarantee(
            None, delta, unit, relation, view, accountant_name, "", (), "no finite epsilon holds at this delta"
        )
    return Guarantee(epsilon, delta, unit, relation, view, accountant_name, "", assumptions)
