"""How far canaries move the sum of an audited round, and how long their messages are: norms, without any noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sfumato.account.event import (
    Relation,
    Unit,
)
from sfumato.audit.asked import Asked
from sfumato.audit.observed_noise import ROUNDED, cut, simplest, watch
from sfumato.errors import SfumatoError
from sfumato.key import Key
from sfumato.pieces.sampler import Everyone

_CANARIES = 80_000  # coordinates of all messages of a round
_HUGE = 1e6  # longer than any norm that an update is clipped to
_EXACT = 1e-9  # what a norm in float64 may be off by


@dataclass(frozen=True)
class CanaryMoves:
    """How far canaries reach over what is stated, each by its name: 1 at most if the statement is true."""

    lengths: dict[str, float]
    sums: dict[str, float]
    coordinates: int


def canaries(length: int, last: int) -> dict[str, Tensor]:
    """Updates that a clip has to bound, longer than any norm; `last` is the length of the last layer."""
    alternating = torch.ones(length)
    alternating[1::2] = -1.0
    single, end, layer = torch.zeros(length), torch.zeros(length), torch.zeros(length)
    single[0], end[-1], layer[-last:] = _HUGE, _HUGE, _HUGE
    return {
        "all coordinates alike": torch.full((length,), _HUGE),
        "the first coordinate": single,
        "the last coordinate": end,
        "the last layer": layer,
        "alternating signs": _HUGE * alternating,
        "a NaN": torch.where(single > 0, torch.nan, 1.0),
        "an infinite coordinate": torch.where(end > 0, torch.inf, 1.0),
        "infinite coordinates": torch.full((length,), -torch.inf),
        "the largest numbers": torch.full((length,), torch.finfo(torch.float32).max),
        **{
            f"random numbers ({place})": (10.0 ** (place - 4)) * Key.from_seed(place).normal(length).float()
            for place in range(8)
        },
    }


def canary_moves(asked: Asked, key: Key) -> CanaryMoves | None:
    """Canaries through the client pieces, alone and among others. None where clients may not send any update."""
    if asked.payment.slot == "local":
        return None
    found = simplest(asked)
    small = cut(found, _CANARIES)
    small = small if _reaches_as_far(small, found) else found
    if math.isfinite(small.proof.before[2].l2) or small.proof.sensitivity is None or asked.proof.sensitivity is None:
        return None
    length = small.proof.before[2].dimension
    sent = canaries(length, max(1, length // max(small.layers, 10)))
    return CanaryMoves(_lengths(small, sent), _sums(asked, small, sent, key), length)


def _reaches_as_far(one: Asked, other: Asked) -> bool:
    try:
        return one.proof.sensitivity == other.proof.sensitivity
    except SfumatoError:
        return False


def _lengths(asked: Asked, sent: dict[str, Tensor]) -> dict[str, float]:
    """The norm of each canary's message over the stated one, in L2 and in L1."""
    slots = watch(asked, [None] * asked.population).world.slots
    client = slots.round.client
    upto = next((nth for nth, piece in enumerate(client) if piece.noise_and_norm() is not None), len(client))
    claim = slots.proof.before[2 + upto]
    if not math.isfinite(claim.l2):
        return {}
    before = (*slots.proof.before[: 2 + upto], *slots.proof.before[2 + len(client) :])
    quiet = replace(
        slots,
        round=replace(slots.round, client=client[:upto], nonprivate=True),
        proof=replace(slots.proof, before=before),
    )
    rows = torch.stack(list(sent.values()))
    keys = [Key.from_seed(number) for number in range(len(rows))]
    opening = slots.open(0, Key.from_seed(0))
    messages = quiet.messages(rows, torch.full((len(rows),), 5), keys, opening, range(len(rows))).double()
    over = torch.maximum(messages.norm(dim=1) / claim.l2 - _EXACT, messages.abs().sum(1) / claim.l1 - ROUNDED)
    return dict(zip(sent, over.tolist(), strict=True))


def _sums(asked: Asked, small: Asked, sent: dict[str, Tensor], key: Key) -> dict[str, float]:
    """How far each canary moves the sum to which noise is added, over the stated sensitivity, beside ordinary clients.

    Against a sum without it (add/remove, zero-out), or with the opposite one in its place (replace; also where it displaces another
    in a cohort of a fixed size).
    """
    relation, size = small.proof.relation, asked.round.sample.cohort_size(asked.proof.before[1])
    fixed = size is not None and size < asked.population
    if asked.unit is Unit.RECORD and asked.payment.claim.moved.l2 < asked.payment.claim.rows_apart.l2:
        return {}
    opposite = relation is Relation.REPLACE or asked.unit is Unit.RECORD or (fixed and relation is Relation.ADD_REMOVE)
    order = getattr(
        getattr(asked.payment.piece, "law", None), "order", 2
    )  # of the norm that the noise is a multiple of
    stated = asked.proof.sensitivity
    assert stated is not None, "it was looked at"
    others: list[Tensor | None] = [0.1 * torch.ones(small.proof.before[2].dimension)] * (small.population - 1)
    found = {}
    for name, update in sent.items():
        present = watch(small, [*others, update])
        if opposite:
            absent = watch(small, [*others, -update])
        elif isinstance(small.round.sample, Everyone):
            absent = watch(small, [*others, None], size=small.population - 1)
        else:
            continue  # one client less draws another cohort
        one, two = (_sum(world.seen_in(key)) for world in (present, absent))
        if one is None or two is None or one.shape != two.shape:
            continue
        found[name] = float(torch.linalg.vector_norm(one - two, order)) / stated - ROUNDED
    return found


def _sum(rows: list[tuple[Tensor, Tensor]]) -> Tensor | None:
    return torch.stack([before for before, _ in rows]).sum(0) if rows else None
