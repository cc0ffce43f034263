"""What an audited round hands out: the noise of its releases, its cohorts, and how far canaries move its sum.

Cohorts are drawn from the whole population, by the keys of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.account.event import (
    Event,
    FixedSizeSampled,
    Mixture,
    PoissonSampled,
)
from sfumato.audit.asked import Asked
from sfumato.audit.canary_moves import CanaryMoves, canary_moves
from sfumato.audit.observed_noise import ROUNDS, ObservedNoise, observed_noise
from sfumato.engine.keys import Keys
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.pieces.protocol import Turn

_COHORTS, _FEWEST_COHORTS, _DRAWN = 1000, 60, 20_000_000


@dataclass(frozen=True)
class ObservedCohorts:
    """Who was drawn [runs, rounds, population], and what is stated: the rate, and whether clients are independent (Poisson).

    `strays` counts the drawn numbers that are not of different clients of the population.
    """

    drawn: NDArray[np.bool_] = field(repr=False)
    rate: float
    independent: bool
    strays: int
    of: str = "clients"


@dataclass(frozen=True)
class Observation:
    """What one round handed out; None where nothing is stated, or no piece is known that could be watched."""

    noise: ObservedNoise | None
    cohorts: tuple[ObservedCohorts, ...]
    moves: CanaryMoves | None


def observe(asked: Asked, key: Key) -> Observation:
    """Run the round with silent clients and with canaries, and draw cohorts."""
    if asked.proof.every != 1 or asked.round.sample.named:
        return Observation(None, (), None)  # a draw lasts for several rounds, or clients differ
    noise, moves = observed_noise(asked, key.child("noise")), canary_moves(asked, key.child("moves"))
    return Observation(noise, tuple(_cohorts(asked, key.child("cohorts"))), moves)


def _cohorts(asked: Asked, key: Key) -> Iterator[ObservedCohorts]:
    """The cohorts of runs as the engine draws them; and of private local steps the batches of their sampler."""
    event, local, at_records = asked.proof.world, asked.round.local, asked.payment.slot == "local"
    outer: Event | None = event
    if at_records:
        outer = event if isinstance(event, Mixture) else None
    stated = None if outer is None else _stated(outer)
    sampler = asked.round.sample
    if stated is not None:
        independent = isinstance(stated, PoissonSampled) or (
            isinstance(stated, Mixture) and sampler.cohort_size(asked.proof.before[1]) is None
        )
        rounds = min(asked.rounds, ROUNDS)

        def turn(run: int, number: int) -> Turn:
            return Keys.of(key.child("run", number=run)).turn(number)

        yield _drawn(
            asked.population,
            rounds,
            lambda run, number: sampler.cohort(asked.population, turn(run, number)),
            stated,
            independent,
        )
    if at_records and isinstance(local, DpSgd):
        inner = _stated(event.event if isinstance(event, Mixture) else event)
        if isinstance(inner, PoissonSampled | FixedSizeSampled):
            batch, records = local.batch, local.records

            def draw(run: int, number: int) -> NDArray[np.int64]:
                return batch.draw(records, key.child("batch", run=run, number=number))

            yield _drawn(records, min(local.steps, ROUNDS), draw, inner, isinstance(inner, PoissonSampled), "records")


def _stated(event: Event) -> PoissonSampled | FixedSizeSampled | Mixture | None:
    return next((part for part in event.walk() if isinstance(part, PoissonSampled | FixedSizeSampled | Mixture)), None)


def _drawn(
    population: int, rounds: int, draw: Any, stated: PoissonSampled | FixedSizeSampled | Mixture, independent: bool,
    of: str = "clients",
) -> ObservedCohorts:  # fmt: skip
    rate = float(stated.probability if isinstance(stated, Mixture) else stated.rate)
    count = min(_COHORTS, max(_FEWEST_COHORTS, _DRAWN // population))
    runs, strays = max(2, count // rounds), 0
    drawn = np.zeros((runs, rounds, population), bool)
    for run in range(runs):
        for number in range(rounds):
            ids = np.asarray(draw(run, number))
            inside = ids[(ids >= 0) & (ids < population)]
            drawn[run, number, inside] = True
            strays += len(ids) - int(drawn[run, number].sum())
    return ObservedCohorts(drawn, rate, independent, strays, of)
