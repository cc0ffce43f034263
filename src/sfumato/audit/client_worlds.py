"""How two worlds of a round are made: the longest rows that its proof allows, and somebody who watches where it is paid for."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.account.event import Relation, Unit
from sfumato.audit.again import Again, Layers, silent, unit
from sfumato.audit.asked import Asked, NoCanary
from sfumato.audit.canaries import Canaries, WatchedMessages, WatchedNoise, WatchedSum
from sfumato.audit.scores import Density
from sfumato.audit.worlds import ClientWorlds, Rows, watches_sum
from sfumato.data.population import Population
from sfumato.engine.slots import Slots
from sfumato.errors import BadValue, SfumatoError
from sfumato.objective import Objective
from sfumato.pieces.channel import Shuffler
from sfumato.pieces.noise import NoiseShare
from sfumato.pieces.staircase import Staircase
from sfumato.round import Round
from sfumato.update import Layout
from sfumato.voting.votes import Votes

HUGE = 1e6  # longer than any norm that a row is clipped to
_SMALL = 4  # coordinates that stand for a model
_RECORDS = 5
_FEW = 2  # clients, where others send nothing


@dataclass(frozen=True)
class Real:
    """Clients who really train beside the canary, which takes the place of the last of them."""

    population: Population
    module: nn.Module
    objective: Objective


def client_worlds(asked: Asked, real: Real | None = None) -> ClientWorlds:
    """The worlds in which one client differs."""
    payment, asked_length = asked.payment, asked.proof.before[2].dimension
    if isinstance(asked.round.channel, Shuffler):
        raise NoCanary(
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
        world = Again.of(audited, found, population, module, asked.rounds, None if real is None else real.objective)
        world = dataclasses.replace(world, train=real is not None)
        again.append(world if here else dataclasses.replace(world, size=count - 1))
    quiet = _quiet(again[1].slots)
    shown = Density(law, stddev), seen, asked_length
    built = ClientWorlds(asked, (again[0], again[1]), rows, count - 1, fixed, quiet, hidden, *shown)
    if real is None and drawn is None and count > 1 and built.look(built.opening()).others.any():
        return client_worlds(
            replace(asked, population=1)
        )  # others' messages are not zero, and how many come is not known
    return built


def _watched(asked: Asked, canary: int, seen: list[Tensor]) -> tuple[Round, bool, float]:
    """The round with somebody who watches where it is paid for; whether they do not see the cohort; and the noise there."""
    round, payment = asked.round, asked.payment
    if payment.slot == "server":
        server: list[Any] = list(round.server)
        server[payment.nth] = WatchedNoise(payment.piece, seen)
        return replace(round, server=tuple(server)), True, _stddev(asked)
    if payment.slot == "client":
        if isinstance(payment.piece, NoiseShare):
            raise NoCanary(
                "noise comes in shares, nothing is proven for their sum, and what a paper claims is about that"
            )
        watches = WatchedMessages(canary, seen)
        return replace(round, client=(*round.client, watches)), False, _stddev(asked)
    assert payment.slot == "channel", "private local steps have worlds of their own"
    share, cohort = payment.claim.share, round.sample.cohort_size(payment.claim)
    assert share is not None and cohort is not None, "shares of a known cohort"
    if not watches_sum(asked):
        raise NoCanary(
            "what the server sees of noise shares without a secure sum is one message: audit the world's view."
        )
    aggregate: Any = round.aggregate
    factor = float(aggregate.finish(torch.ones(1, dtype=torch.float64), 1.0))
    return (
        replace(round, aggregate=WatchedSum(aggregate, seen)),
        asked.view == "world",
        share * math.sqrt(cohort) * factor,
    )


def _stddev(asked: Asked) -> float:
    """The noise on each coordinate where it is paid for, as the proof has it; where nothing is proven, as the law does."""
    found = asked.proof.stddev
    return asked.payment.piece.law.stddev(asked.payment.claim) if found is None else found


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
    """The same with as few clients and coordinates as cost the same: others send zero rows, and a sum forgets these.

    With fewer coordinates the noise of a staircase has another size, and its steps cost the same.
    """
    few = replace(asked, dimension=max(_SMALL, asked.layers))
    jointly = isinstance(getattr(asked.payment.piece, "law", None), Staircase)
    if asked.dimension > few.dimension and not asked.round.unproven and _alike(few, asked, noise=not jointly):
        asked = few
    fixed = asked.round.sample.cohort_size(asked.proof.before[1]) not in (None, asked.population)
    if fixed or asked.payment.slot == "channel" or asked.population <= _FEW:
        return asked
    small = replace(asked, population=_FEW)
    return small if _alike(small, asked) else asked


def _alike(one: Asked, other: Asked, noise: bool = True) -> bool:
    """Whether both cost the same, and draw the same noise."""
    try:
        return one.event == other.event and (not noise or one.proof.stddev == other.proof.stddev)
    except SfumatoError:
        return False
