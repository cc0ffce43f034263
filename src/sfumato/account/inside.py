"""What can be said of an event from its shape alone, for every accountant alike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from sfumato.account.event import (
    ByClient,
    Composed,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    Nothing,
    PoissonSampled,
    PureEvent,
    Relation,
    Repeated,
    compose,
    why_not_private,
)
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
    made_of = {part.name: getattr(event, part.name) for part in fields(event)}  # type: ignore[arg-type]
    changed = {name: _of_client(value, client) for name, value in made_of.items() if isinstance(value, Event | tuple)}
    return replace(event, **changed) if changed else event  # type: ignore[type-var]


def _of_client(value: Any, client: int | None) -> Any:
    if isinstance(value, Event):
        return for_client(value, client)
    return tuple(_of_client(one, client) for one in value) if isinstance(value, tuple) else value


def each_client(event: Event) -> list[Event]:
    """The different things that happened to clients, whoever they are."""
    return for_clients(event)


def for_clients(
    event: Event, who: Iterable[int] | None = None, but: Iterable[int] = (), paying: Event | None = None
) -> list[Event]:
    """The different things that happened to these clients; to all, but for some, where none are named.

    Those whom `paying` costs nothing are left out.
    """
    places = places_of(event, paying or event)
    left_out = set(but)
    asked = [None, *sorted(client for client in places if client not in left_out)] if who is None else who
    alike: dict[tuple[tuple[int, int], ...], int | None] = {}
    for client in asked:
        alike.setdefault(() if client is None else places.get(client, ()), client)
    pay = [client for client in alike.values() if paying is None or not costs_nothing(for_client(paying, client))]
    return list(dict.fromkeys(for_client(event, client) for client in pay))


def places_of(*events: Event) -> dict[int, tuple[tuple[int, int], ...]]:
    """Which groups each client is in, wherever events tell clients apart: those in the same ones went through the same."""
    different = dict.fromkeys(part for event in events for part in event.walk() if isinstance(part, ByClient))
    found: dict[int, list[tuple[int, int]]] = {}
    for nth, part in enumerate(different):
        for place, (clients, _) in enumerate(part.groups):
            for client in clients:
                found.setdefault(client, []).append((nth, place))
    return {client: tuple(places) for client, places in found.items()}


def dearest(events: Iterable[Event]) -> list[Event]:
    """Of several events those that decide the largest price: without what surely costs no more than another of them."""
    left: list[Event] = []
    for one in events:
        if not any(_no_dearer(one, other) for other in left):
            left = [*(other for other in left if not _no_dearer(other, one)), one]
    return left


def _no_dearer(one: Event, other: Event) -> bool:
    """Whether the first surely costs no more, from the shape alone: more noise, a smaller rate, or less often.

    Each is a randomised function of what the other shows, which needs no data: add noise, forget a release, or take for a share
    of the rounds what is drawn where the unit does not take part. Functions of what is shown cost nothing, and compose.
    """
    if one == other or isinstance(one, Nothing):
        return True
    if isinstance(other, Repeated):
        times, inner = (one.times, one.event) if isinstance(one, Repeated) else (1, one)
        return times <= other.times and _no_dearer(inner, other.event)
    if isinstance(one, Composed) and isinstance(other, Composed):
        return len(one.events) == len(other.events) and all(map(_no_dearer, one.events, other.events))
    if type(one) is not type(other):
        return False
    names = _LESS.get(type(one), ())
    known = all(sign * getattr(one, name) <= sign * getattr(other, name) for name, sign in names)
    same = getattr(one, "relation", None) is getattr(other, "relation", None)
    return bool(names) and known and same and all(map(_no_dearer, one.parts(), other.parts()))


# What makes an event cost less: fields that are smaller (1), or larger (-1).
_LESS: dict[type[Event], tuple[tuple[str, int], ...]] = {
    GaussianEvent: (("ratio", -1),),
    LaplaceEvent: (("ratio", -1),),
    PureEvent: (("epsilon", 1),),
    PoissonSampled: (("rate", 1),),
    FixedSizeSampled: (("rate", 1),),
    Mixture: (("probability", 1),),
}
