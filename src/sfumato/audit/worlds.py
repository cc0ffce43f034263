"""Two neighbouring worlds of a round, as far apart as its proof allows: one client differs, and everything else is known.

The present world has a canary client that sends the longest row it may. The absent world is the one that the relation names:
the client is not there to be drawn (add/remove), it sends a zero row (zero-out), or the opposite row (replace). Others send
zero rows; in a cohort of fixed size they send the opposite of the canary's, so that whoever it displaces shows it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.audit.again import Again
from sfumato.audit.asked import Asked
from sfumato.audit.scores import Density, Look, Values
from sfumato.engine.slots import Opening, Slots
from sfumato.key import Key
from sfumato.pieces.context import Context


@dataclass(frozen=True)
class Rows:
    """What the canary sends in either world, and what each of the others sends. `absent` is None where it is not there."""

    present: Tensor
    absent: Tensor | None
    other: Tensor


@dataclass(frozen=True)
class ClientWorlds:
    """The two worlds of one canary client, run by the engine; scores are log-likelihood ratios of what is shown."""

    asked: Asked
    worlds: tuple[Again, Again]  # absent, present
    rows: Rows = field(repr=False)
    canary: int
    fixed: int | None  # the size of every cohort, where that is less than everybody
    quiet: Slots = field(repr=False)
    hidden: bool  # whether nobody sees that the canary was drawn
    density: Density
    seen: list[Tensor] = field(repr=False)
    length: int  # of a message of the round that was asked about
    _looks: dict[str, Look] = field(default_factory=dict, repr=False)

    @property
    def words(self) -> tuple[str, ...]:
        """What was run, for people."""
        others = "real" if self.worlds[1].train else "opposite" if self.rows.other.any() else "zero"
        alone = f"a canary {self.asked.unit} and no other client"
        beside = (
            f"a canary {self.asked.unit}; the rows of {self.canary} other client{'s' * (self.canary > 1)} are {others}"
        )
        length, here = self.length, len(self.rows.present)
        stand = (f"{here} coordinates stand for a message of {length:,}",) if here < length else ()
        return (beside if self.canary else alone, *stand)

    def score(self, present: bool, key: Key) -> float:
        """The log-likelihood ratio of one run, from a fresh key."""
        self.seen.clear()
        found: list[float] = []
        for ids, opening in self.worlds[present].run(key):
            if self.seen and (self.hidden or self.canary in ids):
                found.append(float(self.look(opening).ratio(self.seen[-1].numpy())))
            self.seen.clear()
        return math.fsum(found)

    def imagined(self, present: bool, runs: int, key: Key) -> Values:
        """Scores of made-up runs, as they would be if the round is what it states: what a threshold is chosen from."""
        look = self.look(self.opening())
        rounds, total = self.asked.rounds, np.zeros(runs)
        for number in range(rounds):
            own = key.child("round", number=number)
            ratio = look.imagined(runs, present, own)
            drawn = self.hidden or own.child("takes part").uniform(runs) < self.chance
            total += np.where(drawn, ratio, 0.0)
        return total

    @property
    def chance(self) -> float:
        """The chance that the canary is drawn."""
        size = self.canary + 1
        return min(1.0, self.asked.round.sample.expected(size) / size)

    def opening(self) -> Opening:
        """A first round as it is opened."""
        return self.worlds[1].slots.open(0, Key.from_seed(0))

    def look(self, opening: Opening) -> Look:
        """What a release of this round shows of the canary: its message, as the round's own client pieces make it."""
        changes = bool(opening.prepared or opening.kept)
        if changes or "same" not in self._looks:
            self._looks["same"] = self._look(opening)
        return self._looks["same"]

    def _look(self, opening: Opening) -> Look:
        absent = torch.zeros_like(self.rows.present) if self.rows.absent is None else self.rows.absent
        rows = torch.stack([self.rows.present, absent, self.rows.other])
        keys, ids = [Key.from_seed(number) for number in range(3)], (self.canary, self.canary, 0)
        sizes = torch.full((3,), self.worlds[1].cohort.clients.population.client(0).train.count)
        present, missing, other = map(self._arrives, self.quiet.messages(rows, sizes, keys, opening, ids))
        if self.rows.absent is None:
            missing = np.zeros_like(missing) if self.fixed is None else other
        if not self.hidden and self.asked.payment.slot != "channel":  # one message alone
            return Look(self.density, present, missing, np.zeros_like(other), 1.0)
        chance = self.chance if self.hidden else 1.0
        if self.fixed is None:
            return Look(self.density, present, missing, self.canary * other, chance)
        return Look(self.density, present - other, missing - other, self.fixed * other, chance)

    def _arrives(self, message: Tensor) -> Values:
        """What a message alone comes to where the noise is added."""
        slots, payment = self.worlds[1].slots, self.asked.payment
        if payment.slot == "client" or (payment.slot == "channel" and not watches_sum(self.asked)):
            return message.double().numpy()
        aggregate: Any = slots.round.aggregate
        value = getattr(aggregate, "inner", aggregate).finish(message.double(), 1.0)
        if payment.slot == "server":
            for nth, piece in enumerate(slots.round.server[: payment.nth]):
                claim = [one for one in slots.proof.before if one.aggregated][nth]
                value = piece(value, Context(0, slots.layout, claim, Key.from_seed(nth)))
        return np.asarray(value.double().numpy())


def watches_sum(asked: Asked) -> bool:
    """Whether what is watched is a sum: everyone's view of one, and the server's view of a secure one."""
    return asked.view == "world" or asked.proof.before[-1].only_sum
