"""Two neighbouring worlds of a round, as far apart as its proof allows: one client differs, and everything else is known.

The present world has a canary client that sends the longest row it may. The absent world is the one that the relation names:
the client is not there to be drawn (add/remove), it sends a zero row (zero-out), or the opposite row (replace). Others send
zero rows; in a cohort of fixed size they send the opposite of the canary's, so that whoever it displaces shows it too.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.account.event import Relation, Unit
from sfumato.audit.again import Again, Layers, silent, unit
from sfumato.audit.asked import Asked
from sfumato.audit.canaries import Canaries, WatchedMessages, WatchedNoise, WatchedSum
from sfumato.audit.scores import Density, Look, Values
from sfumato.data.population import Population
from sfumato.engine.slots import Opening, Slots
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.objective import Objective
from sfumato.pieces.channel import Shuffler
from sfumato.pieces.context import Context
from sfumato.round import Round
from sfumato.update import Layout
from sfumato.voting.votes import Votes

HUGE = 1e6  # longer than any norm that a row is clipped to
_SMALL = 4  # coordinates that stand for a model
_RECORDS = 5


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
    seen: list[Tensor] = field(repr=False)
    rows: Rows = field(repr=False)
    canary: int
    fixed: int | None  # the size of every cohort, where that is less than everybody
    quiet: Slots = field(repr=False)
    hidden: bool  # whether nobody sees that the canary was drawn
    density: Density
    _looks: dict[str, Look] = field(default_factory=dict, repr=False)

    @property
    def words(self) -> tuple[str, ...]:
        """What was run, for people."""
        others = "real" if self.worlds[1].train else "opposite" if self.rows.other.any() else "zero"
        return (
            f"a canary client among {self.canary} others, whose rows are {others}",
            f"{self.rows.present.shape[0]} coordinates stand for a message of {self.asked.dimension}",
        )

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
        look = self.look(self._opening())
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

    def _opening(self) -> Opening:
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
        if payment.slot == "client" or (payment.slot == "channel" and not _of_sum(self.asked)):
            return message.double().numpy()
        aggregate: Any = slots.round.aggregate
        value = getattr(aggregate, "inner", aggregate).finish(message.double(), 1.0)
        if payment.slot == "server":
            for nth, piece in enumerate(slots.round.server[: payment.nth]):
                claim = [one for one in slots.proof.before if one.aggregated][nth]
                value = piece(value, Context(0, slots.layout, claim, Key.from_seed(nth)))
        return np.asarray(value.double().numpy())


def _of_sum(asked: Asked) -> bool:
    """Whether what is watched is a sum: everyone's view of one, and the server's view of a secure one."""
    return asked.view == "world" or asked.proof.before[-1].only_sum


@dataclass(frozen=True)
class Real:
    """Clients who really train beside the canary, which takes the place of the last of them."""

    population: Population
    module: nn.Module
    objective: Objective


def client_worlds(asked: Asked, real: Real | None = None) -> ClientWorlds:
    """The worlds in which one client differs."""
    payment = asked.payment
    if isinstance(asked.round.channel, Shuffler):
        raise BadValue(
            "what a shuffler hides cannot be audited by one canary: many messages would have to be modelled."
        )
    asked = _smaller(asked) if real is None else asked
    proof, relation, sampler = asked.proof, asked.proof.relation, asked.round.sample
    drawn = sampler.cohort_size(proof.before[1])
    fixed = drawn if drawn is not None and drawn < asked.population else None
    module = Layers(asked.dimension, asked.layers) if real is None else real.module
    length = asked.round.local.message_length(Layout.of(module))
    law = getattr(payment.piece, "law", None) or next((p.law for p in asked.round.client if hasattr(p, "law")), None)
    opposite = real is None and (asked.others == "opposite" or (fixed is not None and asked.others == "auto"))
    if opposite and drawn is None:
        raise BadValue("--others opposite: how many are drawn varies here, which would hide the canary. Use zero.")
    rows = _rows(asked, length, getattr(law, "order", 2), opposite)
    seen: list[Tensor] = []
    sizes = max([_RECORDS, *(getattr(piece, "cap", None) or 1 for piece in asked.round.client)])
    count = asked.population
    watched, hidden, stddev = _watched(asked, count - 1, seen)
    again = []
    for present in (False, True):
        here = present or relation is not Relation.ADD_REMOVE
        sent = [] if real is not None else [rows.other] * (count - 1)
        sent.append(rows.present if present or rows.absent is None else rows.absent)
        audited = replace(watched, local=Canaries(asked.round.local, count - len(sent), torch.stack(sent)))
        states = audited.derive(population=asked.population, dimension=asked.dimension)
        found = states.primary if asked.round.unproven else states.units[asked.unit]
        assert asked.round.unproven or found.seen(asked.view, asked.rounds) == asked.event, "canaries change no price"
        population = silent(count, sizes) if real is None else real.population
        world = Again.of(audited, found, population, module, asked.rounds, real and real.objective)
        world = dataclasses.replace(world, train=real is not None)
        again.append(world if here else dataclasses.replace(world, size=count - 1))
    density = Density(law, stddev)
    quiet = _quiet(again[1].slots)
    return ClientWorlds(asked, (again[0], again[1]), seen, rows, count - 1, fixed, quiet, hidden, density)


def _watched(asked: Asked, canary: int, seen: list[Tensor]) -> tuple[Round, bool, float]:
    """The round with somebody who watches where it is paid for; whether they do not see the cohort; and the noise there."""
    round, payment = asked.round, asked.payment
    if payment.slot == "server":
        server: list[Any] = list(round.server)
        server[payment.nth] = WatchedNoise(payment.piece, seen)
        return replace(round, server=tuple(server)), True, payment.piece.law.stddev(payment.claim)
    if payment.slot == "client":
        watches = WatchedMessages(canary, seen)
        return replace(round, client=(*round.client, watches)), False, payment.piece.law.stddev(payment.claim)
    assert payment.slot == "channel", "private local steps have worlds of their own"
    share, cohort = payment.claim.share, round.sample.cohort_size(payment.claim)
    assert share is not None and cohort is not None, "shares of a known cohort"
    if not _of_sum(asked):
        raise BadValue(
            "what the server sees of noise shares without a secure sum is one message: audit the world's view."
        )
    aggregate: Any = round.aggregate
    factor = float(aggregate.finish(torch.ones(1, dtype=torch.float64), 1.0))
    return (
        replace(round, aggregate=WatchedSum(aggregate, seen)),
        asked.view == "world",
        share * math.sqrt(cohort) * factor,
    )


def _quiet(slots: Slots) -> Slots:
    """The client pieces up to their noise: what a message says before it is hidden."""
    client = slots.round.client
    noisy = (nth for nth, piece in enumerate(client) if piece.noise_and_norm() is not None)
    upto = next(noisy, len(client))
    if upto == len(client):
        return slots
    before = (*slots.proof.before[: 2 + upto], *slots.proof.before[2 + len(client) :])
    round = replace(slots.round, client=client[:upto], nonprivate=True)
    return Slots(round, replace(slots.proof, before=before), slots.layout)


def _rows(asked: Asked, length: int, order: int, opposite: bool) -> Rows:
    """The longest rows that the proof allows, and as far apart as it allows."""
    claim, local, relation = asked.proof.before[2], asked.round.local, asked.proof.relation
    moved = asked.payment.claim.moved.l2 / asked.payment.claim.row.l2
    if isinstance(local, Votes):
        votes = round(local.voter.bounds(local.classes).norm.l2 ** 2)
        ballot = torch.zeros(local.queries.count, local.classes)
        ballot[:, :votes] = 1.0
        present, against = ballot.flatten(), ballot.roll(votes, 1).flatten()
    else:
        present = unit(length, order) * (HUGE if math.isinf(claim.l2) else claim.l2)
        against = -present
    swapped = relation is Relation.REPLACE or asked.unit is Unit.RECORD
    if swapped and asked.unit is Unit.RECORD and moved < 1.0:
        against = present * (1.0 - moved)
    absent = against if swapped else None if relation is Relation.ADD_REMOVE else torch.zeros_like(present)
    return Rows(present, absent, against if opposite else torch.zeros_like(present))


def _smaller(asked: Asked) -> Asked:
    """The same with as few clients and coordinates as cost the same: others send zero rows, and sums forget them."""

    def same(other: Asked) -> bool:
        try:
            return other.event == asked.event and other.payment.claim.stddev == asked.payment.claim.stddev
        except Exception:
            return False

    few = replace(asked, dimension=max(_SMALL, asked.layers))
    asked = few if asked.dimension > few.dimension and not asked.round.unproven and same(few) else asked
    for population in (2,):
        small = replace(asked, population=population)
        if asked.population > population and asked.round.sample.cohort_size(asked.proof.before[1]) in (
            None,
            asked.population,
        ):
            if same(small) and asked.payment.slot != "channel":
                return small
    return asked
