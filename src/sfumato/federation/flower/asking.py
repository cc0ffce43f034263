"""One question to many clients, from the first letter sent to the last reply read."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sfumato.federation.flower.parcel import Arrival, letter_in, packing
from sfumato.federation.flower.run import Run
from sfumato.federation.wire import BadLetter, Letter

_LOOK = 0.5  # seconds between two looks at who is online
_SKEW = (
    600.0  # seconds by which hosts' clocks may differ: a node dates its reply by its own, and Flower wants it in time
)


@dataclass
class _Open:
    """A question that a client has been sent, and as much of its reply as has come."""

    client: int
    number: bytes
    arrival: Arrival | None = None


class Asking:
    """Sends each client its letter once, and yields at most one reply of each. Its methods may raise CallFailed.

    Every letter has a random number of 16 bytes of its own, which only the client's node is told (and SuperLink, which is
    ours). A reply counts if it brings that number back for that letter: one node cannot answer for another, nor an old reply
    for a new question.
    """

    def __init__(self, run: Run, letters: Mapping[int, Letter], deadline: float) -> None:
        self._run = run
        self._unasked = dict(letters)
        self._open: dict[str, _Open] = {}
        self._end = time.monotonic() + deadline
        self._next_look = 0.0

    @property
    def seconds_left(self) -> float:
        """Until the deadline; 0 if there is nothing to wait for."""
        return max(0.0, self._end - time.monotonic()) if self._unasked or self._open else 0.0

    def post(self) -> None:
        """Ask those who are online and have not been asked; whoever comes online later is asked then."""
        if not self._unasked or time.monotonic() < self._next_look:
            return
        with packing() as packer:
            for client in sorted(self._unasked.keys() & self._run.online()):
                letter, number = self._unasked[client], secrets.token_bytes(16)
                seconds = self._end - time.monotonic() + _SKEW
                parcel = packer.question(letter, number, self._run.number, self._run.nodes[client], seconds)
                if self._run.post(parcel):
                    self._open[parcel.name] = _Open(client, number)
                    del self._unasked[client]
        self._next_look = time.monotonic() + _LOOK

    def look(self) -> Iterator[tuple[int, Letter]]:
        """Replies that have come whole since the last look."""
        for reply in self._run.replies([name for name, one in self._open.items() if one.arrival is None]):
            self._open[reply.to].arrival = Arrival(reply.tree)
        for name, one in list(self._open.items()):
            if one.arrival is None:
                continue
            try:
                if not one.arrival.step(self._run.pull):
                    continue
                letter = _letter(one.arrival, one.number)
            except (BadLetter, LookupError):
                letter = None
            self._run.forget(one.arrival.name)
            del self._open[name]
            if letter is None:
                self._run.forget(name)
            else:
                yield one.client, letter

    def withdraw(self) -> list[str]:
        """Take back what was not answered; the names of questions to which a reply may still come, to be dropped."""
        for name, one in self._open.items():
            self._run.forget(name)
            if one.arrival is not None:
                self._run.forget(one.arrival.name)
        return [name for name, one in self._open.items() if one.arrival is None]


def _letter(arrival: Arrival, number: bytes) -> Letter:
    found, letter = letter_in(arrival.message())
    if not hmac.compare_digest(found, number):
        raise BadLetter("a reply to another question.")
    return letter
