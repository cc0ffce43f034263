"""Who takes part how often and how long, where that is each client's own: public rates, and a public last round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sfumato.account.event import Event, Relation
from sfumato.claim import Claim, Reach, Release
from sfumato.errors import BadValue
from sfumato.pieces.own import by_number, clients_of, grouped
from sfumato.pieces.protocol import Sampler, Turn
from sfumato.pieces.sampler import Everyone, Poisson


@dataclass(frozen=True)
class Presence:
    """A client is drawn with probability `rate` in each of the first `rounds` rounds, and never again; None: in all."""

    rate: float
    rounds: int | None = None

    def __post_init__(self) -> None:
        Poisson(self.rate)
        if self.rounds is not None and (isinstance(self.rounds, bool) or self.rounds < 0):
            raise BadValue(f"Presence(rounds={self.rounds}): a number of rounds, or None for all of them.")


@dataclass(frozen=True)
class PoissonPerClient(Sampler):
    """Poisson sampling in which some clients have a rate and a last round of their own.

    PoissonPerClient(Presence(0.5), {3: Presence(0.1), 7: Presence(0.5, rounds=40)}).

    States, for each client, what Poisson states at its own rate: whether it is drawn is independent of who else is, so
    given the others its pair of worlds is that of its own rate. After its last round it is drawn in neither world, and nothing
    of it is used: such a round costs it nothing. Rates and last rounds are written here before data are seen, so who
    stopped when tells nothing that this plan does not.
    """

    default: Presence
    own: Any = ()  # a mapping from client to presence; kept as pairs of clients and presence
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", Poisson(1.0, self.relation).relation)
        object.__setattr__(self, "own", grouped(self.own, "PoissonPerClient"))

    @property
    def named(self) -> tuple[tuple[int, ...], ...]:
        return clients_of(self.own)

    @cached_property
    def _own(self) -> dict[int, Presence]:
        return by_number(self.own)

    def of(self, client: int | None) -> Presence:
        """How one client takes part."""
        return self.default if client is None else self._own.get(client, self.default)

    def cohort(self, population: int, turn: Turn) -> np.ndarray:
        """Each group is drawn by itself, with a key of its own."""
        named = np.array(sorted(self._own), dtype=np.int64)
        others = np.setdiff1d(self._drawn(self.default, population, turn, 0), named)
        groups = [
            np.array(who, dtype=np.int64)[self._drawn(presence, len(who), turn, nth)]
            for nth, (who, presence) in enumerate(self.own, start=1)
        ]
        return np.sort(np.concatenate([others, *groups]))

    def _drawn(self, presence: Presence, count: int, turn: Turn, nth: int) -> np.ndarray:
        if presence.rounds is not None and turn.round >= presence.rounds:
            return np.empty(0, np.int64)
        return Poisson(presence.rate).draw(count, turn.key.child("group", nth=nth))

    def expected(self, population: int) -> float:
        """The expected cohort while everybody takes part."""
        return self.default.rate * (population - len(self._own)) + sum(one.rate for one in self._own.values())

    def _of(self, claim: Claim) -> Poisson | Everyone:
        """As whom it is drawn; one that is always drawn is drawn as everyone is."""
        rate = self.of(claim.client).rate
        return Everyone(self.relation) if rate == 1.0 else Poisson(rate, self.relation)

    def carry(self, claim: Claim) -> Claim:
        until = self.of(claim.client).rounds
        claim = claim if until is None else claim.assuming("each client stops by itself after its last round")
        return replace(claim, sampling=self, until=until)

    def chance(self, claim: Claim) -> float:
        return self._of(claim).chance(claim)

    def reach(self, claim: Claim, seen: bool) -> Reach:
        return self._of(claim).reach(claim, seen)

    def amplified(self, release: Release, claim: Claim) -> Event:
        return self._of(claim).amplified(release, claim)
