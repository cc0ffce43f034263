"""What a round of the secure sum is agreed on before it begins. Settings for which nothing is proven cannot be made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any

from sfumato.errors import BadValue
from sfumato.secure_sum.degree import LARGEST_EXPOSURE, MOST_NEIGHBOURS, enough, exposure, giving_up
from sfumato.secure_sum.graph import around, circle
from sfumato.secure_sum.modulus import LARGEST_WRAP, wrap_chance
from sfumato.secure_sum.power import Power

SESSION = 32
MOST_CLIENTS = 2**20


@dataclass(frozen=True)
class SumSettings:
    """Public facts of one round: the same for the server and all clients, whose messages carry their digest.

    `session`: 32 bytes, drawn by the server for this round and never used again. `clients`: the cohort, in rising order.
    `largest`: of a coordinate of a row without noise; `noise`: standard deviation of what each client adds, in the same steps.
    `smallest`: the fewest rows in a sum. `colluding`: the most clients of this cohort that tell the server all they know.
    `threshold`: the shares that give a secret back. `neighbours`: of each client; all others, or an even number. `about`: a name
    for what the rows are of; clients that were told different things are in no sum together.

    States, assuming what `assumptions` says: whatever the server and the colluding clients see can be made up from the sum of
    the other clients' rows, and that sum has at least smallest - colluding of them.
    - A server that follows the protocol: threshold > colluding, everybody a neighbour of everybody (Bonawitz et al. 2017), or
      fewer neighbours with an `exposure` of at most 2^-40 (Bell et al. 2020; `degree`).
    - An active one: everybody a neighbour, signed keys, and 2 threshold > clients + colluding. A set of survivors counts with
      `threshold` signatures, at least threshold - colluding of them honest ones; an honest client signs one set; two sets would
      need 2 (threshold - colluding) honest clients, and there are only clients - colluding. So all honest clients that
      answer do so for one set: for each client they give shares of one of its two secrets, and the colluders' alone are too few
      for the other. Fewer neighbours are refused: Bell et al. prove another protocol for that.
    """

    session: bytes
    clients: tuple[int, ...]
    dimension: int
    bits: int
    largest: int
    noise: float
    smallest: int
    colluding: int
    threshold: int
    neighbours: int
    power: Power = Power.FOLLOWS
    about: str = ""

    def __post_init__(self) -> None:
        self._check_shape()
        count = len(self.clients)
        if not 0 <= self.colluding < self.smallest <= count:
            raise self._wrong(
                f"a sum of {self.smallest} of {count} rows, of which {self.colluding} may collude, need not hide anybody",
                "choose colluding < smallest <= the number of clients",
            )
        everybody = self.neighbours == count - 1
        most = min(count, MOST_NEIGHBOURS)
        if not everybody and not (2 <= self.neighbours <= most and self.neighbours % 2 == 0):
            raise self._wrong(
                f"{self.neighbours} neighbours", f"use all {count - 1} others, or an even number up to {most}"
            )
        least, most = (self.colluding + 1, self.smallest) if everybody else (1, self.neighbours)
        if not least <= self.threshold <= most:
            raise self._wrong(
                f"the threshold {self.threshold} is none from {least} to {most}: fewer shares could be known to those who collude, "
                "and more need not be there to give a secret back",
                f"use {(least + most) // 2}",
            )
        if self.power is Power.ACTIVE and not everybody:
            raise self._wrong(
                "against an active server nothing is proven of this protocol with fewer neighbours than all",
                f"use neighbours={count - 1}, or a server that follows the protocol",
            )
        if self.power is Power.ACTIVE and 2 * self.threshold <= count + self.colluding:
            raise self._wrong(
                f"with a threshold of {self.threshold} an active server could show two sets of survivors to different clients",
                f"use a threshold and a smallest sum of at least {(count + self.colluding) // 2 + 1}",
            )
        if self.exposure > LARGEST_EXPOSURE:
            raise self._wrong(
                f"with a chance of up to {float(self.exposure):.2g} these neighbours or this threshold show more than the sum",
                "use the neighbours and threshold of enough(clients, colluding, smallest)",
            )
        if self.wrap > LARGEST_WRAP:
            raise self._wrong(
                f"with a chance of up to {self.wrap:.2g} a sum passes 2^{self.bits - 1} and would be read wrongly",
                "use 64 bits, a coarser grid, or less noise",
            )

    def _check_shape(self) -> None:
        if type(self.session) is not bytes or len(self.session) != SESSION:
            raise BadValue(f"SumSettings: a session has {SESSION} bytes, e.g. os.urandom({SESSION}).")
        if type(self.about) is not str:
            raise BadValue("SumSettings: about is a text that names what the rows are of.")
        numbers = (*self.clients, self.dimension, self.largest, self.smallest, self.threshold, self.neighbours)
        if any(type(number) is not int for number in numbers) or type(self.colluding) is not int:
            raise self._wrong("clients, sizes and counts are whole numbers", "use int")
        pairs = zip(self.clients, self.clients[1:], strict=False)
        if not 2 <= len(self.clients) <= MOST_CLIENTS or self.clients[0] < 0 or any(a >= b for a, b in pairs):
            raise self._wrong("the clients are no rising tuple of 2 to 2^20 numbers", "use tuple(sorted(cohort))")
        if self.clients[-1] >= 2**63 or self.dimension < 1 or self.largest < 0 or self.bits not in (32, 64):
            raise self._wrong(
                f"clients below 2^63, dimension={self.dimension} at least 1, largest={self.largest} at least 0 and "
                f"bits={self.bits} of 32 or 64 are wanted",
                "give the cohort, the length of a row and the largest size of its numbers",
            )

    def _wrong(self, what: str, fix: str) -> BadValue:
        return BadValue(f"SumSettings: {what}. {fix[0].upper()}{fix[1:]}.")

    @staticmethod
    def chosen(
        session: bytes,
        clients: tuple[int, ...],
        dimension: int,
        *,
        largest: int,
        noise: float,
        smallest: int,
        colluding: int,
        bits: int = 64,
        power: Power = Power.FOLLOWS,
        about: str = "",
    ) -> SumSettings:
        """With neighbours and a threshold that are proven to be enough.

        >>> settings = SumSettings.chosen(bytes(32), tuple(range(9)), 100, largest=2**20, noise=3.0, smallest=8, colluding=2)
        >>> settings.neighbours, settings.threshold
        (8, 5)
        """
        neighbours, threshold = enough(len(clients), colluding, smallest)
        if power is Power.ACTIVE:
            neighbours, threshold = len(clients) - 1, (len(clients) + colluding) // 2 + 1
        return SumSettings(
            session, clients, dimension, bits, largest, noise, smallest, colluding, threshold, neighbours, power, about
        )

    @cached_property
    def exposure(self) -> Fraction:
        """At most this chance, over the drawing of neighbours, that a round shows more than the sum: to be added to delta."""
        return exposure(len(self.clients), self.colluding, self.smallest, self.neighbours, self.threshold)

    @property
    def giving_up(self) -> Fraction:
        """At most this chance that a round is given up though no more than clients - smallest have dropped out by its end."""
        return giving_up(len(self.clients), self.smallest, self.neighbours, self.threshold)

    @cached_property
    def wrap(self) -> float:
        """At most this chance that some coordinate of a sum is read wrongly (`modulus`): it costs correctness, never privacy."""
        return wrap_chance(len(self.clients), self.dimension, self.bits, self.largest, self.noise)

    @cached_property
    def places(self) -> dict[int, int]:
        """Where each client stands in the cohort, from 0."""
        return {client: place for place, client in enumerate(self.clients)}

    @cached_property
    def _near(self) -> list[frozenset[int]]:
        if self.neighbours == len(self.clients) - 1:
            return [frozenset(self.clients)] * len(self.clients)
        return around(circle(self.clients, self.session), self.neighbours)

    def near(self, client: int) -> frozenset[int]:
        """A client's neighbours and itself: everybody works them out from the session, so nobody can be told others."""
        return self._near[self.places[client]]

    def to_json(self) -> dict[str, str | int]:
        """All of it in texts and whole numbers, as it may travel."""
        plain: dict[str, Any] = asdict(self)
        listed = ",".join(map(str, self.clients))
        return plain | {
            "session": self.session.hex(), "clients": listed, "noise": float(self.noise).hex(), "power": self.power.value
        }  # fmt: skip

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> SumSettings:
        """The same settings again; whatever is not exactly theirs is refused."""
        try:
            read = dict(facts)
            read["session"] = bytes.fromhex(read["session"])
            read["clients"] = tuple(int(word) for word in read["clients"].split(","))
            read["noise"], read["power"] = float.fromhex(read["noise"]), Power(read["power"])
            settings = SumSettings(**{field.name: read.pop(field.name) for field in fields(SumSettings)})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadValue(f"these are no settings of a secure sum ({type(error).__name__}). Use to_json().") from error
        if read or settings.to_json() != dict(facts):
            raise BadValue("these settings of a secure sum are not written as to_json() writes them.")
        return settings

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for all of it."""
        written = json.dumps(self.to_json(), sort_keys=True).encode()
        return hashlib.blake2b(written, digest_size=32, person=b"sfumato-sum").digest()
