"""What private local training must hold for each record: batches, clip, noise, divisor and steps are those that it states."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from sfumato.account.event import Event, FixedSizeSampled, PoissonSampled, Relation, Repeated, Unit
from sfumato.claim import Reach
from sfumato.data.population import Records
from sfumato.derive import UnitDerivation
from sfumato.gradients import OneByOne
from sfumato.key import Key
from sfumato.local.task import Task
from sfumato.pieces.mean import RealisedMean
from sfumato.pieces.optimizer import GradientDescent
from sfumato.pieces.sampler import Everyone
from sfumato.round import Round
from sfumato.testing.noise import check_law, check_uncorrelated, stated_law
from sfumato.testing.round import check_scores
from sfumato.testing.sampler import check_drawn
from sfumato.update import Layout

_HUGE = 1e6
_WIDE = 2000


@dataclass(frozen=True)
class _Spy(GradientDescent):
    """Goes nowhere, and keeps every noisy gradient that it is given."""

    seen: list[np.ndarray] = field(default_factory=list, compare=False)

    def step(self, params: torch.Tensor, state: Any, update: torch.Tensor) -> tuple[torch.Tensor, Any]:
        self.seen.append(-update.double().numpy())
        return params, state


def check_records(piece: Any, *, draws: int = 1000, confidence: float = 1 - 1e-6) -> None:
    """Local training of DpSgd's kind takes as many steps as it states, on batches drawn as it states, clips each record, adds
    the stated noise whatever the batch, divides by a constant; and an attack on one step stays under what the step costs.

    The optimizer is replaced by one that watches, which is allowed to see every step. The loss is linear, so that a record's
    gradient is whatever the check wants it to be.
    """
    count, proof = piece.records, _proof(replace(piece, steps=3))
    assert isinstance(proof.world, Repeated) and proof.world.times == 3, f"{piece} states {proof.world} for 3 steps"
    assert len(_watched(replace(piece, steps=3), torch.eye(count), torch.zeros(count))) == 3, (
        f"{piece} takes more or fewer steps than it states"
    )
    _check_batches(piece, proof.world.event, draws)
    _check_clip(piece)
    wide = _proof(replace(piece, steps=3), _WIDE).world
    assert isinstance(wide, Repeated)
    _check_noise(piece, wide.event, proof.relation)
    _check_attack(piece, proof, draws, confidence)


def _proof(piece: Any, dimension: int = 5) -> UnitDerivation:
    round = Round(sample=Everyone(), local=piece, aggregate=RealisedMean(), unit=Unit.RECORD)
    return round.derive(population=2, dimension=dimension).primary


def _watched(piece: Any, x: torch.Tensor, y: torch.Tensor, name: str = "first", number: int = 0) -> np.ndarray:
    """The noisy gradients of one training, as sums: [steps, dim]. Record i has the gradient y[i] x[i]."""
    spy, module = _Spy(1.0), nn.Linear(x.shape[1], 1, bias=False)
    layout = Layout.of(module)
    row, key = torch.zeros(layout.dimension), Key.from_seed(23).child(name)
    task = Task(OneByOne(module), layout, _linear, row, row[None], [Records(x, y)], [key], number)
    replace(piece, optimizer=spy).train(task)
    return np.asarray(np.stack(spy.seen) * piece.divisor)


def _linear(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return outputs.squeeze(-1) * y


def _check_batches(piece: Any, event: Event, draws: int) -> None:
    """Each record has a coordinate of its own, and next to no noise: a step shows who was in it."""
    quiet = replace(piece, steps=draws).with_noise(1e-3)
    sums = _watched(quiet, torch.eye(piece.records), torch.full((piece.records,), _HUGE))
    drawn = sums > piece.clip / 2
    assert np.allclose(sums, piece.clip * drawn, atol=0.01 * piece.clip), f"{piece}: records do not add the clip norm"
    if isinstance(event, PoissonSampled | FixedSizeSampled):
        check_drawn(piece.batch, drawn, event)
    else:
        assert drawn.all(), f"{piece} states {event}, without sampling, but leaves records out"


def _check_clip(piece: Any) -> None:
    """Records that nobody would want: each still adds at most the clip norm, and nothing if its gradient is not finite."""
    quiet = replace(piece, steps=40).with_noise(1e-3)
    scales = torch.tensor([0.0, 0.3, 1.0, 50.0, 1e30, float("nan"), float("inf"), -float("inf")])
    y = scales[torch.arange(piece.records) % len(scales)] * piece.clip
    sums = _watched(quiet, torch.eye(piece.records), y)
    assert np.isfinite(sums).all(), f"{piece} lets a gradient pass that is not finite"
    allowed = y.nan_to_num(0.0, 0.0, 0.0).clamp(max=piece.clip).numpy() + 0.01 * piece.clip
    assert (sums <= allowed).all(), f"{piece} adds more of a record than the clip norm"
    same = _watched(quiet, torch.ones(piece.records, 1), torch.full((piece.records,), _HUGE))
    most = piece.records if not hasattr(piece.batch, "size") else piece.batch.size
    assert (same <= piece.clip * (most + 0.01)).all(), f"{piece} adds more of the records than their number allows"


def _check_noise(piece: Any, event: Event, relation: Relation) -> None:
    """No gradients at all leave the noise, which has the stated law in every coordinate, step, round and client."""
    inner: Any = getattr(event, "event", event)
    two_rows = relation is Relation.REPLACE or isinstance(event, FixedSizeSampled)  # a swap, or one displaces another
    far = piece.clip * (2 if two_rows else 1)
    law, stated = stated_law(inner, Reach(far, far if piece.order == 1 else far * math.sqrt(_WIDE), _WIDE))
    x, y = torch.zeros(piece.records, _WIDE), torch.zeros(piece.records)
    loud = replace(piece, steps=20)
    first, second = _watched(loud, x, y), _watched(loud, x, y, "second")
    for step in (first.flatten(), *first[:5]):
        check_law(step, stated, law)
    if isinstance(event, PoissonSampled) and relation is Relation.ADD_REMOVE:  # no records, so every batch is empty
        check_law(_watched(loud, x[:0], y[:0], "empty").flatten(), stated, law)
    check_uncorrelated(first[:-1].flatten(), first[1:].flatten(), "of two steps")
    check_uncorrelated(first.flatten(), second.flatten(), "of two clients")


def _check_attack(piece: Any, proof: UnitDerivation, draws: int, confidence: float) -> None:
    """All records pull one way and the last one pulls the other way, or as the relation says is not there."""
    assert isinstance(proof.world, Repeated)
    for others in (1e-6, -_HUGE):
        scores = []
        for present in (False, True):
            y = torch.full((piece.records + 1,), others)
            y[-1] = _HUGE if present else -_HUGE
            if proof.relation is Relation.ADD_REMOVE and not present:
                y = y[:-1]
            seen = _watched(replace(piece, steps=draws), torch.ones(len(y), 1), y, "present" if present else "absent")
            scores.append(seen[:, 0])
        check_scores("an attack on one step", scores, proof.world.event, (1e-3, 0.05), confidence)
