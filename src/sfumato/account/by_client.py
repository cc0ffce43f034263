"""What each client went through, when clips, rates, noises or local training differ between clients."""

from __future__ import annotations

from dataclasses import replace

from sfumato.account.event import ByClient, Composed, Event, compose


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
