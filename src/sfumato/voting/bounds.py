"""How long answers to a query may be, how far apart, and how far one record moves one. No torch is needed to state it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sfumato.claim import Claim, Reach
from sfumato.errors import BadValue


@dataclass(frozen=True)
class Bounds:
    """Of a client's answer to one query: its norm, the distance of any two answers, and how far one record moves it."""

    norm: Reach
    apart: Reach
    record: Reach

    @staticmethod
    def of_labels(classes: int, most: int = 0) -> Bounds:
        """Of weights that are not negative and add up to at most 1; or, with `most`, of 0 to 1 for each of several attributes,
        that add up to at most `most`. One record may turn any answer into any other.

        Distances: for a and b of that kind, |a - b|_1 <= |a|_1 + |b|_1 and |a - b|_2^2 <= |a|_2^2 + |b|_2^2, since no product of
        coordinates is negative; and each of the coordinates moves by at most 1. So 2 and sqrt 2, or min(2 most, classes) and
        its root; they are reached by two different single labels, or by disjoint sets.
        """
        most = most or 1
        widest = float(min(2 * most, classes)) if classes > 1 else 1.0
        apart = Reach(math.sqrt(widest), widest)
        return Bounds(Reach(math.sqrt(most), float(most)), apart, apart)

    def shared_by(self, voters: int) -> Bounds:
        """Where an answer is the mean over a constant number, and one record decides only one of them."""
        return replace(self, record=self.record.scaled(1.0 / voters))

    def carry(self, claim: Claim, count: int) -> Claim:
        """The claim of a row of answers to `count` queries: sqrt(count) times as long in L2, and `count` times in L1."""
        norm, apart, record = (
            Reach(reach.l2 * math.sqrt(count), reach.l1 * count, claim.dimension)
            for reach in (self.norm, self.apart, self.record)
        )
        return (
            claim.bounded(l2=norm.l2, l1=norm.l1)
            .closer(apart, record, count)
            .assuming("what a client answers depends on its own records alone")
        )


def parse_votes(words: str) -> Bounds:
    """What `--votes` says: `label`, `knn:K` or `attributes:MOST`.

    >>> round(parse_votes("knn:10").record.l2, 6)
    0.141421
    """
    kind, _, size = words.partition(":")
    if (kind == "label") != (not size) or kind not in ("label", "knn", "attributes") or (size and not size.isdigit()):
        raise BadValue(
            f"--votes {words}: use label, knn:K (the K nearest records) or attributes:MOST (at most so many)."
        )
    number = int(size or 1)
    if number < 1:
        raise BadValue(f"--votes {words}: at least 1.")
    if kind == "attributes":
        return Bounds.of_labels(2 * number, number)
    return Bounds.of_labels(2).shared_by(number)
