"""Each client's own epsilon, when clips, rates, noises or local training differ between clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sfumato.account.event import ByClient, Composed, Event, Real, compose
from sfumato.account.inside import parts, walk
from sfumato.account.protocol import accountant


def depends_on_client(event: Event) -> bool:
    """Whether what happened to a record depends on whose it is."""
    return any(isinstance(part, ByClient) for part in walk(event))


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
    inside = parts(event)
    return replace(event, event=for_client(inside[0], client)) if inside else event  # type: ignore[type-var]


def each_client(event: Event) -> list[Event]:
    """The different things that happened to clients, whoever they are."""
    named = {client for part in walk(event) if isinstance(part, ByClient) for who, _ in part.groups for client in who}
    return list(dict.fromkeys(for_client(event, client) for client in (None, *sorted(named))))


@dataclass(frozen=True)
class LargestOverClients:
    """Prices what each client went through, and says what holds for all of them."""

    name: str = "auto"

    def epsilon(self, event: Event, delta: Real) -> float:
        """The largest epsilon."""
        return max(accountant("auto").epsilon(own, delta) for own in each_client(event))

    def epsilons(self, event: Event, times: Sequence[int], delta: Real) -> list[float]:
        """The largest epsilon after each number of repetitions in `times`."""
        every = [accountant("auto").epsilons(own, times, delta) for own in each_client(event)]
        return [max(values) for values in zip(*every, strict=True)]

    def delta(self, event: Event, epsilon: Real) -> float:
        """The largest delta."""
        return max(accountant("auto").delta(own, epsilon) for own in each_client(event))

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        """The lowest floor under the false negative rate."""
        return min(accountant("auto").tradeoff(own, false_positive_rate) for own in each_client(event))
