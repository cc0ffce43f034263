"""What can be said of an event from its shape alone, for every accountant alike."""

from __future__ import annotations

import math
from dataclasses import replace

from sfumato.account.event import ByClient, Composed, Event, Nothing, Relation, compose, why_not_private
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


def for_client(event: Event, client: int | None) -> Event:
    """What happened to the records of one client; None stands for every client that has no event of its own.

    >>> from sfumato.account.event import GaussianEvent, Repeated
    >>> event = Repeated(ByClient(GaussianEvent(1.0), (((3, 4), GaussianEvent(2.0)),)), 5)
    >>> for_client(event, 3), for_client(event, None)
    (Repeated(event=GaussianEvent(ratio=2.0), times=5), Repeated(event=GaussianEvent(ratio=1.0), times=5))
    """
    if isinstance(event, ByClient):
        own = next((own for who, own in event.groups if client in who), event.default)
        return for_client(own, client)
    if isinstance(event, Composed):
        return compose(*(for_client(part, client) for part in event.events))
    inside = event.parts()
    return replace(event, event=for_client(inside[0], client)) if inside else event  # type: ignore[type-var]


def each_client(event: Event) -> list[Event]:
    """The different things that happened to clients, whoever they are."""
    different = [part for part in event.walk() if isinstance(part, ByClient)]
    if not different:
        return [event]
    named = {client for part in different for who, _ in part.groups for client in who}
    return list(dict.fromkeys(for_client(event, client) for client in (None, *sorted(named))))
