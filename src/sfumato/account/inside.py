"""What can be said of an event from its shape alone, for every accountant alike."""

from __future__ import annotations

from collections.abc import Iterator

from sfumato.account.event import Composed, Event, NonPrivate, Nothing, Relation
from sfumato.errors import CannotAccount


def parts(event: Event) -> tuple[Event, ...]:
    """The events directly inside this one; a leaf has none.

    >>> from sfumato.account.event import Repeated
    >>> parts(Repeated(Nothing(), 3))
    (Nothing(),)
    """
    return event.parts()


def walk(event: Event) -> Iterator[Event]:
    """The event and everything inside it."""
    yield event
    for part in parts(event):
        yield from walk(part)


def costs_nothing(event: Event) -> bool:
    """Whether no private data was touched anywhere."""
    inside = parts(event)
    made_of_others = isinstance(event, Composed) or bool(inside)
    return isinstance(event, Nothing) or (made_of_others and all(map(costs_nothing, inside)))


def is_non_private(event: Event) -> bool:
    """Whether any part has no guarantee at all."""
    return any(isinstance(part, NonPrivate) for part in walk(event))


def relations(event: Event) -> set[Relation]:
    """The relations that the samplers inside speak of; unsampled noise fits every relation."""
    said = (getattr(part, "relation", None) for part in walk(event))
    return {relation for relation in said if isinstance(relation, Relation)}


def check_one_relation(event: Event) -> None:
    """Refuse to add what holds for different neighbours."""
    found = relations(event)
    if len(found) > 1:
        names = " and ".join(sorted(found))
        raise CannotAccount(f"events under {names} cannot be summed. Account all of them under replace, or apart.")
