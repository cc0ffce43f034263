"""What can be said of an event from its shape alone, for every accountant alike."""

from __future__ import annotations

import math

from sfumato.account.event import Composed, Event, Nothing, Relation, why_not_private
from sfumato.errors import CannotAccount


def costs_nothing(event: Event) -> bool:
    """Whether no private data was touched anywhere."""
    inside = event.parts()
    made_of_others = isinstance(event, Composed) or bool(inside)
    return isinstance(event, Nothing) or (made_of_others and all(map(costs_nothing, inside)))


def known_cost(event: Event) -> float | None:
    """The epsilon that needs no accountant: 0 if nothing was touched, infinity if a step has no guarantee, else None.

    What holds for different neighbours is refused, since it cannot be added; unsampled noise fits every relation.
    """
    said = (getattr(part, "relation", None) for part in event.walk())
    found = {relation for relation in said if isinstance(relation, Relation)}
    if len(found) > 1:
        names = " and ".join(sorted(found))
        raise CannotAccount(f"events under {names} cannot be summed. Account all of them under replace, or apart.")
    if costs_nothing(event):
        return 0.0
    return None if why_not_private(event) is None else math.inf
