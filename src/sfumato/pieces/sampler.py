"""Samplers draw the cohort, and state the relation and the amplification that go with that very way of drawing.

Amplification is for those who do not see the cohort. The server does: against it a round costs the unsampled event in
those rounds in which the client took part, which is a mixture, and it costs the full event if the server may choose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from sfumato.account.dominating import is_proven
from sfumato.account.event import Composed, CuriousDraws, Event, FixedSizeSampled, PoissonSampled, Relation, Unit
from sfumato.claim import Claim, Reach, Release
from sfumato.errors import BadValue, UnsoundRound
from sfumato.exact_draws import below, gaps
from sfumato.key import Key
from sfumato.pieces.protocol import FreshSampler


def _known_relation(sampler: str, relation: str) -> Relation:
    try:
        return Relation(str(relation).replace("-", "_"))
    except ValueError:
        names = ", ".join(Relation)
        raise BadValue(f"{sampler}: there is no relation {relation!r}. Use one of {names}.") from None


Sampled = TypeVar("Sampled", PoissonSampled, FixedSizeSampled)


def _proven(event: Sampled) -> Sampled:
    if is_proven(event):
        return event
    kind = "Poisson sampling" if isinstance(event, PoissonSampled) else "a fixed-size cohort"
    own = "add_remove" if isinstance(event, PoissonSampled) else "replace"
    raise UnsoundRound(
        f"{kind} of {event.event.words()} has no proof here under {event.relation.words}: only Gaussian noise has.",
        f"use Gaussian noise, or relation='{own}'.",
    )


@dataclass(frozen=True)
class Poisson(FreshSampler):
    """Each client is drawn with probability `rate`, independently of the others, anew every round.

    States: add/remove (and zero-out, the same pair) by the exact pair N(0) against (1-rate) N(0) + rate N(1); replace by
    (1-rate) N(0) + rate N(+1/2) against (1-rate) N(0) + rate N(-1/2), in units of the sensitivity.

    >>> Poisson(rate=0.5).draw(10, Key.from_seed(1))
    array([0, 3, 4, 6, 7])
    """

    rate: float
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", _known_relation("Poisson", self.relation))
        if not 0.0 < self.rate <= 1.0:
            raise BadValue(f"Poisson(rate={self.rate}): the rate is a probability, above 0 and at most 1, e.g. 0.05.")

    def draw(self, population: int, key: Key) -> np.ndarray:
        """The numbers of the drawn clients, by exact geometric gaps: the work grows with the cohort, not the population."""
        if self.rate == 1.0:
            return np.arange(population)
        expected = population * self.rate
        count = int(expected + 10.0 * math.sqrt(expected) + 20.0)
        drawn: list[np.ndarray] = []
        last, attempt = -1.0, 0
        while last < population:
            places = last + np.cumsum(1.0 + gaps(count, self.rate, key.child("jumps", part=attempt)))
            drawn.append(places[places < population])
            last, attempt = float(places[-1]), attempt + 1
        return np.concatenate(drawn).astype(np.int64)

    def expected(self, population: int) -> float:
        return population * self.rate

    def carry(self, claim: Claim) -> Claim:
        return replace(claim, sampling=self)

    def chance(self, claim: Claim) -> float:
        """The chance to be drawn, whatever one knows of others."""
        return self.rate

    def reach(self, claim: Claim, seen: bool) -> Reach:
        """Where the cohort is not seen, the pair that is proven for swapped rows is that of opposite ones.

        Closer rows of the same length are no better hidden: both may lie far from the zero of a round without the client.
        """
        unseen = not seen and not claim.barely_moves
        swapped = claim.unit is Unit.RECORD or claim.relation is Relation.REPLACE
        return claim.row.scaled(2.0) if unseen and swapped else claim.moved

    def amplified(self, release: Release, claim: Claim) -> Event:
        if claim.barely_moves:
            return claim.observed(release)
        replaced = claim.unit is Unit.RECORD or claim.relation is Relation.REPLACE
        relation = Relation.REPLACE if replaced else Relation.ADD_REMOVE
        return _proven(PoissonSampled(self.rate, release(self.reach(claim, seen=False)), relation))


@dataclass(frozen=True)
class FixedSize(FreshSampler):
    """A cohort of exactly `size` clients, uniformly without replacement, anew every round.

    States: replace by the profile C_q of the unsampled event, and so zero-out, which swaps a row for a zero one; add/remove
    at twice the norm, because a client that joins displaces another. `curious` clients pool what they know of the cohort,
    so q = size / (population - curious); at least one is assumed, since clients see the model. Under add/remove their own draws
    tell how many there are to draw from, which is paid for too.

    >>> FixedSize(size=3).draw(10, Key.from_seed(1))
    array([5, 7, 9])
    """

    size: int
    relation: Relation = Relation.REPLACE
    curious: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", _known_relation("FixedSize", self.relation))
        if not isinstance(self.size, int) or self.size < 1:
            raise BadValue(f"FixedSize(size={self.size}): a cohort has at least 1 client, as a whole number.")
        if not isinstance(self.curious, int) or self.curious < 0:
            raise BadValue(
                f"FixedSize(curious={self.curious}): the number of curious clients is a whole number, at least 0."
            )

    def draw(self, population: int, key: Key) -> np.ndarray:
        """The numbers of the drawn clients: the first `size` different ones of a stream of uniform numbers, or all but those."""
        if self.size > population:
            raise BadValue(f"FixedSize(size={self.size}): there are only {population} clients. Lower the size.")
        fewer = min(self.size, population - self.size)
        found = np.empty(0, np.int64)
        attempt = 0
        while len(found) < fewer:
            stream = np.concatenate([found, below(population, 2 * fewer + 8, key.child("numbers", part=attempt))])
            _, first = np.unique(stream, return_index=True)
            found, attempt = stream[np.sort(first)], attempt + 1
        chosen = np.sort(found[:fewer])
        return chosen if fewer == self.size else np.delete(np.arange(population), chosen)

    def expected(self, population: int) -> float:
        return float(self.size)

    def carry(self, claim: Claim) -> Claim:
        fewest = claim.population - (claim.presence_is_hidden and self.curious > 0)  # in the smaller of two neighbours
        if self.size > fewest - self.curious:
            raise UnsoundRound(
                f"FixedSize(size={self.size}) draws from {claim.population} clients of whom {self.curious} may be curious, "
                "so the cohort hides nobody and no rate below 1 is provable.",
                "lower the size, or use Everyone().",
            )
        if claim.presence_is_hidden:
            claim = claim.assuming("at least the declared number of clients are there, also without any one of them")
        if self.curious == 0:
            claim = claim.assuming("no client tells whether it was drawn itself")
        return replace(claim, sampling=self)

    def chance(self, claim: Claim) -> float:
        """The chance to be drawn, for those who know `curious` clients' own part."""
        return self.size / (claim.population - self.curious)

    def cohort_size(self, claim: Claim) -> int | None:
        return self.size

    def reach(self, claim: Claim, seen: bool) -> Reach:
        """Where the cohort is not seen, a row always turns into another, also when a client joins: it displaces one.

        So it does under replace too: the proof compares cohorts with the client to those where another stands in its place,
        whose row is bounded by what bounds anybody's. Where the cohort is seen, or priced as if it were because clients
        remember, it is the same in both worlds, so a row that is zeroed moves the sum by no more than itself.
        """
        return claim.moved if seen or claim.remembers or claim.barely_moves else claim.displaced

    def amplified(self, release: Release, claim: Claim) -> Event:
        if claim.remembers and claim.presence_is_hidden:
            raise UnsoundRound(
                "FixedSize with add/remove and personal models has no proof: a client that joins displaces others, whose own "
                "models then differ in later rounds too.",
                "use relation='replace', or Poisson sampling.",
            )
        # Amplification needs that nothing but the data decides a row, and has to price any two of them.
        if claim.remembers or claim.barely_moves:
            return claim.observed(release)
        relation = Relation.ADD_REMOVE if claim.presence_is_hidden else Relation.REPLACE
        drawn = _proven(FixedSizeSampled(self.chance(claim), release(self.reach(claim, seen=False)), relation))
        if not claim.presence_is_hidden or self.curious == 0:
            return drawn
        return Composed((CuriousDraws(self.size, claim.population, self.curious), drawn))


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
        return np.arange(population)

    def expected(self, population: int) -> float:
        return float(population)

    def carry(self, claim: Claim) -> Claim:
        return replace(claim, sampling=self)

    def chance(self, claim: Claim) -> float:
        return 1.0

    def cohort_size(self, claim: Claim) -> int | None:
        return claim.population

    def reach(self, claim: Claim, seen: bool) -> Reach:
        return claim.moved

    def amplified(self, release: Release, claim: Claim) -> Event:
        return release(self.reach(claim, seen=False))


Sampler: TypeAlias = Poisson | FixedSize | Everyone


@dataclass(frozen=True)
class Drawn:
    """A sampler, and the number of those it draws from, where the words say it."""

    sampler: Sampler
    population: int | None = None

    @property
    def rate(self) -> float:
        """The share that is drawn, on average."""
        return self.sampler.expected(self.population or 1) / (self.population or 1)

    def __str__(self) -> str:
        if isinstance(self.sampler, Everyone):
            return "everyone"
        kind = "fixed" if isinstance(self.sampler, FixedSize) else "poisson"
        if self.population is None:
            return f"{kind}:{self.rate:g}"
        return f"{kind}:{round(self.sampler.expected(self.population))}/{self.population}"


def parse_drawn(words: str, relation: str = "", option: str = "sample", curious: int = 1) -> Drawn:
    """What a command line says of a cohort, or of the records of a batch.

    `poisson:RATE`, `poisson:SIZE/POPULATION`, `fixed:SIZE`, `fixed:SIZE/POPULATION`, `everyone` or `everyone:POPULATION`.

    >>> parse_drawn("fixed:50/1000").population
    1000
    """
    kind, _, amount = words.partition(":")
    chosen: dict[str, Any] = {"relation": _known_relation("--relation", relation)} if relation else {}
    if kind in ("shuffle", "shuffled", "epoch", "cyclic"):
        raise UnsoundRound(
            f"{option}={words!r}: what takes turns in shuffled passes is not drawn independently, so the amplification that is "
            "proven for random draws does not hold.",
            "use poisson:RATE or fixed:SIZE, which draw anew every time, or everyone.",
        )
    size, slash, population = amount.partition("/")
    try:
        declared = int(population) if slash else None
        if declared is not None and not 1 <= int(size) <= declared:
            raise BadValue(f"{option}={words!r}: a size from 1 to the population is needed, e.g. {kind}:50/1000.")
        if kind == "poisson":
            return Drawn(Poisson(int(size) / declared if declared else float(size), **chosen), declared)
        if kind == "fixed":
            return Drawn(FixedSize(int(size), curious=curious, **chosen), declared)
        if words == "everyone" or (kind == "everyone" and int(amount) > 0):
            return Drawn(Everyone(**chosen), int(amount) if amount else None)
    except ValueError as error:
        if isinstance(error, BadValue):
            raise
    raise BadValue(f"{option}={words!r}: use poisson:RATE (e.g. poisson:0.05), fixed:SIZE (e.g. fixed:50) or everyone.")


def parse_sampler(words: str, relation: str = "", option: str = "sample") -> Sampler:
    """The sampler of a run, whose population is declared elsewhere.

    >>> parse_sampler("fixed:50")
    FixedSize(size=50, relation=<Relation.REPLACE: 'replace'>, curious=1)
    """
    found = parse_drawn(words, relation, option)
    if found.population is not None:
        kind = words.partition("/" if "/" in words else ":")[0]
        raise BadValue(f"{option}={words!r}: their number is declared elsewhere. Write {kind}.")
    return found.sampler
