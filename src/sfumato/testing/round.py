"""What a whole round must hold: an attack on it finds no more than its guarantee allows."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from sfumato.account import accountant
from sfumato.account.event import Event, NonPrivate, Relation, Unit
from sfumato.audit.bounds import epsilon_lower_bound
from sfumato.engine.keys import Keys
from sfumato.engine.slots import Opening, Slots
from sfumato.key import Key
from sfumato.objective import regression
from sfumato.pieces.context import MessageContext
from sfumato.round import Round
from sfumato.update import Layout

_DIMENSION = 3


def check_round(round: Round, *, population: int = 6, draws: int = 500, confidence: float = 1 - 1e-6) -> None:
    """The strongest audit that we know of stays under the guarantee.

    All clients but one send huge rows in one direction, and the last one sends a huge row in another; the neighbouring
    world is the one that the relation names. The release is projected on the line between the two worlds, and the best
    threshold's lower bound on epsilon (Clopper and Pearson) must not pass the epsilon that the derivation proves for one round.
    """
    derivation = round.derive(population=population, dimension=_DIMENSION)
    proof = derivation.primary
    assert not isinstance(proof.world, NonPrivate), "a round without a guarantee has none to check"
    slots = Slots(round, proof, Layout(("weight",), (torch.Size([_DIMENSION]),)))
    for others in (0.0, -1.0):
        scores = [_releases(slots, population, draws, present, others) for present in (False, True)]
        check_scores("an attack", scores, proof.world, (1e-3, 0.05, 0.3), confidence)


def _releases(slots: Slots, population: int, draws: int, present: bool, others: float) -> np.ndarray:
    """The released aggregate along the canary's direction, for many runs of one round."""
    root = Key.from_seed(17).child("present" if present else "absent")
    relation = slots.proof.relation if slots.proof.unit is Unit.CLIENT else Relation.REPLACE
    count = population if present or relation is not Relation.ADD_REMOVE else population - 1
    rows = torch.zeros(count, _DIMENSION)
    rows[:, 0] = others * 1e3
    if count == population:
        rows[-1, 0] = 1e3 if present else -1e3 if relation is Relation.REPLACE else 0.0
    found = np.empty(draws)
    for draw in range(draws):
        keys = Keys.of(root.child("draw", number=draw))
        ids = torch.from_numpy(np.asarray(slots.round.sample.cohort(count, keys.turn(0))))
        sizes = torch.full((len(ids),), 5)
        opening = slots.open(0, keys.opening(0))
        own = [keys.client(int(client), round=0) for client in ids]
        messages = slots.messages(rows[ids], sizes, own, opening, ids.tolist())
        found[draw] = float(_released(slots, messages, sizes, opening, keys)[0])
    return found


def _released(slots: Slots, messages: torch.Tensor, sizes: torch.Tensor, opening: Opening, keys: Keys) -> torch.Tensor:
    """What becomes of messages, in the order in which the channel passes them on; aggregates get no model to look at."""
    order = slots.round.channel.order(len(messages), keys.channel)
    if order is not None:
        messages, sizes = messages[order], sizes[order]
    total = slots.weighted_sum(messages, sizes) if slots.sums else (messages, float(len(messages)))
    params = torch.zeros(slots.layout.dimension)
    senders = tuple(range(len(messages))) if order is None else None
    seen = MessageContext(
        0, slots.layout, slots.proof.before[0], params, regression(), _no_model, keys.aggregate(0), senders
    )
    return slots.release(*total, opening, keys, slots.start(), seen)[0]


def _no_model(row: torch.Tensor) -> nn.Module:
    raise NotImplementedError("there is no model in this check")


def check_scores(
    attack: str, scores: list[np.ndarray], event: Event, deltas: tuple[float, ...], confidence: float
) -> None:
    """What an attack scored, absent and present, shows no larger epsilon than the event costs."""
    for delta in deltas:
        proven = accountant("auto").epsilon(event, delta)
        for sign in (1.0, -1.0):
            found = epsilon_lower_bound(sign * scores[0], sign * scores[1], delta, confidence)
            assert found <= proven, f"{attack} shows epsilon >= {found:.3f} at delta {delta}: {proven:.3f} is claimed"
