"""One run with many canaries: each has a coordinate of its own, and a coin of its own says which world it is in."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.account import accountant
from sfumato.account.event import Relation, Unit
from sfumato.audit.again import Again, Layers, silent
from sfumato.audit.asked import Asked
from sfumato.audit.bounds import BY_SCORES, Scores, rounded_down
from sfumato.audit.canaries import Canaries, WatchedNoise, WatchedSteps
from sfumato.audit.client_worlds import HUGE
from sfumato.audit.family import Family
from sfumato.audit.one_run import Guesses, curve, f_dp, rejects_guesses, steinke
from sfumato.audit.record_worlds import linear
from sfumato.audit.scores import Density, Look
from sfumato.data.population import Population
from sfumato.errors import BadValue
from sfumato.guarantee import rounded_up
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.objective import Objective
from sfumato.pieces.law import Gaussian, Laplace
from sfumato.pieces.sampler import FixedSize

_SHARE = 10  # one in so many canaries is guessed in, and as many are guessed out: fixed before any run
_LEAST_DELTA = 1e-3  # over the number of canaries: the delta at which the term that grows with both says nothing yet


@dataclass(frozen=True)
class OneRun:
    """What one run with many canaries shows; `delta` is smaller than the run's where that would make the bound vacuous."""

    canaries: int
    guesses: int
    right: int
    delta: float
    claimed: float
    one_run: float
    one_run_f_dp: float | None
    refutes: bool  # whether what is proven is contradicted at 1 - 1e-6
    seconds: float = 0.0

    def line(self) -> str:
        """For people."""
        curve = "" if self.one_run_f_dp is None else f", {rounded_down(self.one_run_f_dp)} by the whole curve"
        return (
            f"One run with {self.canaries} canaries: {self.right} of {self.guesses} guesses right; epsilon at least "
            f"{rounded_down(self.one_run)}{curve}, of at most {rounded_up(self.claimed, 4)} at delta {rounded_up(self.delta, 3)}."
        )


def one_run(asked: Asked, family: Family | None, canaries: int, key: Key, delta: float, alpha: float) -> OneRun:
    """Run once, guess the coins from what was seen, and then count how many guesses were right.

    The two bounds of one run have half of alpha each. What is proven is refuted by its own curve, which assumes nothing.
    """
    started = time.perf_counter()
    if asked.event is None:
        raise BadValue("--canaries: one run is held against what is proven, and nothing is proven here. Leave it out.")
    if isinstance(canaries, bool) or canaries < 2 * _SHARE:
        raise BadValue(f"canaries={canaries}: at least {2 * _SHARE}, e.g. 1000.")
    coins = (key.child("coins").uniform(canaries) < 0.5).astype(np.float64)
    scores = _scores(asked, coins, key.child("run"))
    guesses = Guesses.of(scores, coins, canaries // _SHARE, canaries // _SHARE)
    small = min(delta, _LEAST_DELTA / canaries)
    share = alpha / 2 if family is not None else alpha
    whole = None if family is None else f_dp(guesses, family, small, share)
    claimed, seconds = accountant().epsilon(asked.whole or asked.event, small), time.perf_counter() - started
    refutes = rejects_guesses(guesses, curve(asked.event), BY_SCORES / 2)  # many runs have the other half
    found = guesses.made, guesses.right, small, claimed, steinke(guesses, small, share), whole, refutes
    return OneRun(canaries, *found, seconds)


def _scores(asked: Asked, coins: Scores, key: Key) -> Scores:
    """A score for each canary. The scorer gets what was seen, and not the coins."""
    law: Any = getattr(asked.payment.piece, "law", None)
    if not isinstance(law, Gaussian | Laplace):
        raise BadValue(
            "--canaries: one run needs Gaussian or Laplace noise on every coordinate by itself. Leave it out."
        )
    asked = replace(asked, dimension=len(coins))
    if asked.payment.slot == "local":
        seen, present, stddev, chance = _of_records(asked, coins, key)
    elif asked.payment.slot == "server" and asked.round.sample.cohort_size(asked.proof.before[1]) in (
        None,
        asked.population,
    ):
        seen, present, stddev, chance = _of_clients(asked, coins, key)
    else:
        raise BadValue(
            "--canaries: one run is for noise at the server without a fixed cohort, or in local steps. Leave it out."
        )
    opposite = asked.proof.relation is Relation.REPLACE
    look = Look(Density(law, stddev), np.array([present]), np.array([-present * opposite]), np.zeros(1), chance)
    return np.asarray(look.ratio(seen[:, :, None]).sum(0))


def _directions(coins: Scores, relation: Relation) -> Tensor:
    """What canaries send: those that are in it their own direction, others nothing, the opposite, or they are not there."""
    rows = HUGE * torch.eye(len(coins))
    inside = torch.from_numpy(coins > 0)
    if relation is Relation.ADD_REMOVE:
        return rows[inside]
    return rows * torch.where(inside, 1.0, -1.0 if relation is Relation.REPLACE else 0.0)[:, None]


def _of_clients(asked: Asked, coins: Scores, key: Key) -> tuple[Scores, float, float, float]:
    if asked.unit is not Unit.CLIENT and asked.proof.relation is not Relation.REPLACE:
        raise BadValue("--canaries: records have none here. Leave it out.")
    if math.isfinite(asked.proof.before[2].l2):  # nothing clips a row that is bounded where it is made
        raise BadValue("--canaries: votes are rows of a kind of their own, and no directions. Leave it out.")
    rows, payment, seen = _directions(coins, asked.proof.relation), asked.payment, list[Tensor]()
    server: list[Any] = list(asked.round.server)
    server[payment.nth] = WatchedNoise(payment.piece, seen)
    size, module = len(rows), Layers(len(coins), asked.layers)
    audited = replace(asked.round, server=tuple(server), local=Canaries(asked.round.local, 0, rows))
    proof = audited.derive(population=max(size, asked.population), dimension=len(coins)).units[asked.unit]
    for _ in Again.of(audited, proof, silent(size, 5), module, asked.rounds).run(key):
        pass
    values = torch.stack(seen)[:, : len(coins)].numpy()
    if seen[0].shape[0] < len(coins):
        raise BadValue("--canaries: this round leaves coordinates out, and with them canaries. Leave it out.")
    aggregate: Any = asked.round.aggregate
    adds = float(aggregate.finish(torch.full((1,), payment.claim.l2 * _over(aggregate), dtype=torch.float64), 1.0))
    return values, adds, payment.piece.law.stddev(payment.claim), asked.round.sample.expected(1000) / 1000


def _over(aggregate: Any) -> float:
    """What the claim was divided by on its way."""
    return aggregate.divisor or 1.0


def _of_records(asked: Asked, coins: Scores, key: Key) -> tuple[Scores, float, float, float]:
    local = asked.round.local
    if not isinstance(local, DpSgd) or isinstance(local.batch, FixedSize) or asked.round.sample.expected(1) != 1.0:
        raise BadValue(
            "--canaries: one run needs DpSgd with Poisson batches, at clients who all take part. Leave it out."
        )
    seen: list[Tensor] = []
    watched = replace(local, optimizer=WatchedSteps(seen), weight_decay=0.0, proximal=0.0, lr_decay=1.0)
    x = _directions(coins, asked.proof.relation)
    population = Population("canaries", 1, lambda client: (x, torch.ones(len(x))))
    module = nn.Linear(len(coins), 1, bias=False)
    nn.init.zeros_(module.weight)
    audited = replace(asked.round, local=Canaries(watched, 1, torch.zeros(1, len(coins))))
    proof = audited.derive(population=asked.population, dimension=len(coins)).units[asked.unit]
    for _ in Again.of(audited, proof, population, module, asked.rounds, Objective(linear)).run(key):
        pass
    stddev = local.unproven(replace(asked.proof.before[1], dimension=len(coins))).stddev
    assert stddev is not None, "it adds noise"
    return torch.stack(seen).numpy() * local.divisor, local.clip, stddev, local.batch.expected(1000) / 1000
