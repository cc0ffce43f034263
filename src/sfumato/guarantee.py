"""A guarantee is a pure function of what was spent, an accountant and delta; it reads as a sentence."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Context
from typing import Any

from sfumato.account import accountant
from sfumato.account.auto import Auto
from sfumato.account.event import Event, Relation, Unit, why_not_private
from sfumato.account.selected import Selected
from sfumato.errors import BadValue
from sfumato.notebook import guarantee_card

ONE_SHOWN = "nobody, clients that take part included, sees more of all the runs than the best: not how many, nor how long they took"


@dataclass(frozen=True, repr=False)
class Guarantee:
    """What is proven for one unit in one view, and under which assumptions. `epsilon` is None where nothing is proven."""

    epsilon: float | None
    delta: float
    unit: Unit
    relation: Relation
    view: str
    accountant: str
    mechanism: str = ""
    assumptions: tuple[str, ...] = ()
    unproven: str = ""
    client: int | None = None  # whose it is, if it is one client's own

    def __str__(self) -> str:
        return self.sentence + (f" Assuming: {'; '.join(self.assumptions)}." if self.assumptions else "")

    def __repr__(self) -> str:
        return f"Guarantee({self.headline})"

    def to_json(self) -> dict[str, Any]:
        """Its facts, and the headline and the sentence that they make; the assumptions stand beside them."""
        return {**asdict(self), "headline": self.headline, "sentence": self.sentence}

    def _repr_html_(self) -> str:
        return guarantee_card(self.headline, self.sentence, self.assumptions)

    @property
    def whose(self) -> str:
        """Whose data are hidden: each unit's, or those of the one client that it speaks of."""
        if self.client is None:
            return f"each {self.unit}"
        return f"{'client' if self.unit is Unit.CLIENT else 'each record of client'} {self.client}"

    @property
    def headline(self) -> str:
        """Epsilon, delta, whose data and against whom, in one line."""
        return headline(self.epsilon, self.delta, self.whose, self.view)

    @property
    def sentence(self) -> str:
        """What is proven, or why nothing is; without the assumptions."""
        if self.epsilon is None:
            return f"No proven guarantee against {self.view}: {self.unproven.rstrip('.')}."
        change = self.relation.neighbours(self.unit)
        epsilon, delta = rounded_up(self.epsilon, 4), rounded_up(self.delta, 3)
        return (
            f"({epsilon}, {delta})-differential privacy for {self.whose} against {self.view}: whether {change} changes the "
            f"chance of anything that they see by at most a factor of e^{epsilon}, but for a chance of {delta} "
            f"({self.relation.words}; {self.mechanism}; accountant: {self.accountant})."
        )


def headline(epsilon: float | None, delta: float, whose: str, view: str, digits: int = 4) -> str:
    """What matters of a guarantee: epsilon (rounded up, so many digits), delta, whose data, against whom.

    >>> headline(1.78048, 1e-4, "each client", "everyone who sees the model")
    'epsilon = 1.781 at delta = 0.0001 for each client, against everyone who sees the model'
    """
    if epsilon is None:
        return f"no proven guarantee for {whose}, against {view}"
    return f"epsilon = {rounded_up(epsilon, digits)} at delta = {rounded_up(delta, 3)} for {whose}, against {view}"


def told_once(world: Guarantee, server: Guarantee) -> tuple[Guarantee, ...]:
    """Two views; one that names both, where all else is the same."""
    if replace(server, view=world.view) != world:
        return world, server
    return (replace(world, view=f"{world.view}, {server.view} included"),)


def rounded_up(number: float, digits: int) -> str:
    """A bound with so many digits that is still a bound.

    >>> rounded_up(0.0029435, 3), rounded_up(2.0, 4), rounded_up(1e-05, 3)
    ('0.00295', '2', '1e-05')
    """
    context = Context(prec=digits, rounding=ROUND_CEILING)
    return f"{float(context.create_decimal(repr(number))):.{digits}g}"


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
    unpaid: str = "it sees the messages before any noise",
) -> Guarantee:
    """The guarantee for what happened; `unpaid` says why there is none in a view without an event."""
    check_delta(delta)
    if event is not None and any(isinstance(part, Selected) for part in event.walk()):
        assumptions = (*assumptions, ONE_SHOWN)
    why = unpaid if event is None else why_not_private(event)
    if event is not None and why is None:
        chosen = Auto().choose(event) if accountant_name == "auto" else accountant(accountant_name)
        epsilon = chosen.epsilon(event, delta)
        if math.isfinite(epsilon):
            return Guarantee(epsilon, delta, unit, relation, view, chosen.name, event.words(), assumptions)
        why = "no finite epsilon holds at this delta"
    return Guarantee(None, delta, unit, relation, view, accountant_name, unproven=why or "")
