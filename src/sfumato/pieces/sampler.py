"""Samplers draw the cohort, and state the relation and the amplification that go with that very way of drawing.

Amplification is for those who do not see the cohort. The server does: against it a round costs the unsampled event in
those rounds in which the client took part, which is a mixture, and it costs the full event if the server may choose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sfumato.account.event import Event, FixedSizeSampled, Mixture, PoissonSampled, Relation, Unit
from sfumato.claim import Claim
from sfumato.errors import BadValue, UnsoundRound
from sfumato.key import Key
from sfumato.pieces.protocol import FreshSampler


def _known_relation(sampler: str, relation: str) -> Relation:
    try:
        return Relation(str(relation).replace("-", "_"))
    except ValueError:
        names = ", ".join(Relation)
        raise BadValue(f"{sampler}: there is no relation {relation!r}. Use one of {names}.") from None


@dataclass(frozen=True)
class Poisson(FreshSampler):
    """Each client is drawn with probability `rate`, independently of the others, anew every round.

    States: add/remove (and zero-out, the same pair) by the exact pair N(0) against (1-rate) N(0) + rate N(1); replace by
    (1-rate) N(0) + rate N(+1/2) against (1-rate) N(0) + rate N(-1/2), in units of the sensitivity.

    >>> Poisson(rate=0.5).draw(10, Key.from_seed(1))
    array([0, 1, 3, 4, 6])
    """

    rate: float
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", _known_relation("Poisson", self.relation))
        if not 0.0 < self.rate <= 1.0:
            raise BadValue(f"Poisson(rate={self.rate}): the rate is a probability, above 0 and at most 1, e.g. 0.05.")

    def draw(self, population: int, key: Key) -> np.ndarray:
        """The numbers of the drawn clients, by geometric jumps: the work grows with the cohort, not the population."""
        if self.rate == 1.0:
            return np.arange(population)
        expected = population * self.rate
        count = int(expected + 10.0 * math.sqrt(expected) + 20.0)
        drawn: list[np.ndarray] = []
        last, attempt = -1.0, 0
        while last < population:
            jumps = 1.0 + np.floor(np.log(key.child("jumps", part=attempt).uniform(count)) / math.log1p(-self.rate))
            places = last + np.cumsum(jumps)
            drawn.append(places[places < population])
            last, attempt = float(places[-1]), attempt + 1
        return np.concatenate(drawn).astype(np.int64)

    def expected(self, population: int) -> float:
        """The expected cohort: a public number to divide by."""
        return population * self.rate

    def carry(self, claim: Claim) -> Claim:
        """The cohort hides the client from those who do not see it."""
        return replace(claim, sampling=self)

    def stretch(self, relation: Relation) -> int:
        """A row appears or disappears (1), or turns into another (2)."""
        return 2 if relation is Relation.REPLACE else 1

    def amplified(self, event: Event, claim: Claim) -> Event:
        """The round's event for those who do not see the cohort."""
        replaced = claim.unit is Unit.RECORD or claim.relation is Relation.REPLACE
        return PoissonSampled(self.rate, event, Relation.REPLACE if replaced else Relation.ADD_REMOVE)

    def observed(self, event: Event, claim: Claim) -> Event:
        """The round's event for those who see the cohort."""
        return Mixture(self.rate, event)


@dataclass(frozen=True)
class FixedSize(FreshSampler):
    """A cohort of exactly `size` clients, uniformly without replacement, anew every round.

    States: replace by the profile C_q of the unsampled event; add/remove at twice the norm, because a client that joins
    displaces another. `curious` clients pool what they know of the cohort, so q = size / (population - curious); at least
    one is assumed, since clients see the model.

    >>> FixedSize(size=3).draw(10, Key.from_seed(1))
    array([5, 8, 9])
    """

    size: int
    relation: Relation = Relation.REPLACE
    curious: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", _known_relation("FixedSize", self.relation))
        if self.size < 1:
            raise BadValue(f"FixedSize(size={self.size}): a cohort has at least 1 client.")
        if self.curious < 0:
            raise BadValue(f"FixedSize(curious={self.curious}): the number of curious clients cannot be negative.")

    def draw(self, population: int, key: Key) -> np.ndarray:
        """The numbers of the drawn clients: the first `size` different ones of a stream of uniform numbers."""
        if self.size > population:
            raise BadValue(
                f"FixedSize(size={self.size}): the population has only {population} clients. Lower the size."
            )
        if 2 * self.size > population:
            return np.sort(key.permutations(1, population)[0, : self.size])
        found = np.empty(0, np.int64)
        attempt = 0
        while len(found) < self.size:
            numbers = key.child("numbers", part=attempt).integers(2 * self.size + 8) % np.uint64(population)
            stream = np.concatenate([found, numbers.astype(np.int64)])
            _, first = np.unique(stream, return_index=True)
            found, attempt = stream[np.sort(first)], attempt + 1
        return np.sort(found[: self.size])

    def expected(self, population: int) -> float:
        """The expected cohort: a public number to divide by."""
        return float(self.size)

    def carry(self, claim: Claim) -> Claim:
        """The cohort hides the client from those who do not see it."""
        if self.size > claim.population - self.curious:
            raise UnsoundRound(
                f"FixedSize(size={self.size}) draws from {claim.population} clients of whom {self.curious} may be curious, "
                "so the cohort hides nobody and no rate below 1 is provable.",
                "lower the size, or use Everyone().",
            )
        if self.curious == 0:
            claim = claim.assuming("no client tells whether it was drawn itself")
        return replace(claim, sampling=self)

    def rate(self, claim: Claim) -> float:
        """The chance to be drawn, for those who know `curious` clients' own part."""
        return self.size / (claim.population - self.curious)

    def stretch(self, relation: Relation) -> int:
        """A row turns into another, also when a client joins: it displaces one."""
        return 2

    def amplified(self, event: Event, claim: Claim) -> Event:
        """The round's event for those who do not see the cohort."""
        if claim.unit is Unit.CLIENT and claim.relation is Relation.ZERO_OUT:
            raise UnsoundRound(
                "FixedSize with zero-out has no proven amplification: the pair (1-q)N(0)+qN(2C) against (1-q)N(0)+qN(C) is "
                "attained, which is worse than what sampling usually gives.",
                "use relation='replace' or relation='add_remove'.",
            )
        if claim.remembers and claim.unit is Unit.CLIENT and claim.relation is Relation.ADD_REMOVE:
            raise UnsoundRound(
                "FixedSize with add/remove and personal models has no proof: a client that joins displaces others, whose own "
                "models then differ in later rounds too.",
                "use relation='replace', or Poisson sampling.",
            )
        if claim.remembers:  # the proof of amplification needs that nothing but the data decides a row
            return self.observed(event, claim)
        relation = Relation.REPLACE if claim.unit is Unit.RECORD else claim.relation
        return FixedSizeSampled(self.rate(claim), event, relation)

    def observed(self, event: Event, claim: Claim) -> Event:
        """The round's event for those who see the cohort."""
        return Mixture(self.rate(claim), event)


@dataclass(frozen=True)
class Everyone(FreshSampler):
    """Every client takes part in every round. States: no amplification, so the cohort needs no secrecy.

    >>> Everyone().draw(3, Key.from_seed(0))
    array([0, 1, 2])
    """

    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", _known_relation("Everyone", self.relation))

    def draw(self, population: int, key: Key) -> np.ndarray:
        """All of them."""
        return np.arange(population)

    def expected(self, population: int) -> float:
        """The expected cohort: a public number to divide by."""
        return float(population)

    def carry(self, claim: Claim) -> Claim:
        """Nothing is hidden by the cohort."""
        return replace(claim, sampling=self)

    def stretch(self, relation: Relation) -> int:
        """A row appears or disappears (1), or turns into another (2)."""
        return 2 if relation is Relation.REPLACE else 1

    def amplified(self, event: Event, claim: Claim) -> Event:
        """The event itself."""
        return event

    def observed(self, event: Event, claim: Claim) -> Event:
        """The event itself."""
        return event


def parse_sampler(words: str, relation: str = "", option: str = "sample") -> Poisson | FixedSize | Everyone:
    """The sampler of a command line: `poisson:RATE`, `fixed:SIZE` or `everyone`; of clients, or of records in a batch.

    >>> parse_sampler("fixed:50")
    FixedSize(size=50, relation=<Relation.REPLACE: 'replace'>, curious=1)
    """
    name, _, number = words.partition(":")
    chosen: dict[str, Any] = {"relation": _known_relation("--relation", relation)} if relation else {}
    if name in ("shuffle", "shuffled", "epoch", "cyclic"):
        raise UnsoundRound(
            f"{option}={words!r}: what takes turns in shuffled passes is not drawn independently, so the amplification that is "
            "proven for random draws does not hold.",
            "use poisson:RATE or fixed:SIZE, which draw anew every time, or everyone.",
        )
    try:
        if name == "poisson":
            return Poisson(float(number), **chosen)
        if name == "fixed":
            return FixedSize(int(number), **chosen)
        if words == "everyone":
            return Everyone(**chosen)
    except ValueError as error:
        if isinstance(error, BadValue):
            raise
    raise BadValue(f"{option}={words!r}: use poisson:RATE (e.g. poisson:0.05), fixed:SIZE (e.g. fixed:50) or everyone.")
