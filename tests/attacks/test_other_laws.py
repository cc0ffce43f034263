"""Explicit attacks on Laplace and staircase noise: none attains more than is printed, and where it is exact they come near it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sfumato import (  # fmt: skip
    AddNoise,
    Clip,
    DpSgd,
    Everyone,
    FixedSize,
    Laplace,
    Mean,
    Poisson,
    RealisedMean,
    Relation,
    Round,
    Staircase,
    Unit,
)
from sfumato.claim import Claim
from tests.attacks.losses import Array, Composed, Pair
from tests.attacks.search import DELTAS, printed
from tests.attacks.semantics import Chosen
from tests.helpers import staircase_below

NORM, ROUNDS, POPULATION = 0.5, 2, 4
EDGES = np.concatenate([[-np.inf], np.arange(-30.0, 30.0, 1 / 32), [np.inf]])
PLANE = np.stack(np.meshgrid(np.arange(-16.0, 16.0, 1 / 8) + 1 / 16, np.arange(-16.0, 16.0, 1 / 8) + 1 / 16), -1)
Density = Callable[[float], Array]


def laplace(law: Laplace) -> Density:
    """The chances of the cells of a line around a centre, in units of the norm, from the scale alone."""

    def below(at: Array) -> Array:
        return np.asarray(0.5 + np.sign(at) * -np.expm1(-np.abs(at) / law.noise_multiplier) / 2)

    return lambda centre: np.diff(below(EDGES - centre))


def staircase(law: Staircase) -> Density:
    below = staircase_below(law.loss, law.share(1))
    inside = EDGES[1:-1]
    return lambda centre: np.diff(np.concatenate([[0.0], below(inside - centre), [1.0]]))


def joint_staircase(law: Staircase) -> Density:
    """The same on a plane, cell by cell from the density: moved by whole cells, so both worlds have the same masses."""

    def chances(centre: float) -> Array:
        norm = np.abs(PLANE - np.array([centre, 0.0])).sum(-1).ravel()
        step = np.floor(norm)
        found = np.exp(-law.loss * np.where(norm - step < law.share(2), step, step + 1))
        return np.asarray(found / found.sum())

    return chances


def sampled(sample: Any) -> tuple[float, float]:
    """How often the sum moves, and how far in norms: a client that comes, or one among others who all pull the other way."""
    if isinstance(sample, FixedSize):
        return sample.size / POPULATION, 2.0
    return (sample.rate if isinstance(sample, Poisson) else 1.0), 1.0


def seen(sample: Any, density: Density) -> list[Composed]:
    """What two rounds show of the two worlds, in both directions, and one after the other where who is swapped may differ."""
    rate, far = sampled(sample)
    still, moved = density(0.0), density(far)
    pair = Pair((1 - rate) * still + rate * moved, still)
    ways = [[pair] * ROUNDS, [pair.reversed] * ROUNDS]
    if sample.relation is Relation.REPLACE:
        ways.append([pair, pair.reversed])
    return [Composed(way) for way in ways]


def at_server(sample: Any, law: Any) -> Round:
    slots = {"local": Chosen(), "client": (Clip(NORM, order=1),), "aggregate": Mean(2.0), "server": (AddNoise(law),)}
    return Round(sample=sample, **slots)


def in_steps(batch: Any, law: Any) -> Round:
    local = DpSgd(1, batch, POPULATION, NORM, law, order=1)
    return Round(sample=Everyone(), local=local, aggregate=RealisedMean(), unit=Unit.RECORD)


SAMPLES = (Poisson(0.3), Everyone(), FixedSize(2, curious=0), Poisson(0.5, Relation.ZERO_OUT))
EXACT: list[tuple[Any, Any, Density]] = [
    *((sample, Laplace(1.0), laplace(Laplace(1.0))) for sample in SAMPLES),
    *((sample, Staircase(0.7), staircase(Staircase(0.7))) for sample in (Poisson(0.3), Everyone())),
]


@pytest.mark.parametrize(("sample", "law", "density"), EXACT, ids=lambda one: type(one).__name__)
def test_where_it_is_exact_the_attack_attains_it(sample: Any, law: Any, density: Density) -> None:
    tried = seen(sample, density)
    in_messages = sample.relation is Relation.ZERO_OUT  # which is not about records
    for build in (at_server,) if in_messages else (at_server, in_steps):
        proof = build(sample, law).derive(population=POPULATION, dimension=1).primary
        for delta in DELTAS:
            epsilon = printed(proof.world, ROUNDS, delta, proof.unit, proof.relation)
            assert epsilon is not None
            best = max(one.epsilon(delta) for one in tried)
            assert 0.93 * epsilon <= best <= epsilon, (best, epsilon)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_the_joint_staircase_shows_no_more_than_its_pure_epsilon(sample: Any) -> None:
    law = Staircase(0.7)
    proof = at_server(sample, law).derive(population=POPULATION, dimension=2).primary
    tried = seen(sample, joint_staircase(law))
    for delta in DELTAS:
        epsilon = printed(proof.world, ROUNDS, delta, proof.unit, proof.relation)
        assert epsilon is not None
        assert 0.4 * epsilon <= max(one.epsilon(delta) for one in tried) <= epsilon


def test_a_staircase_on_each_coordinate_would_be_caught() -> None:
    """Accounted as the joint one, it is attacked above what is printed: five coordinates' losses add up."""
    law, count = Staircase(0.7), 5
    proof = at_server(Everyone(), law).derive(population=POPULATION, dimension=count).primary
    epsilon = printed(proof.world, 1, 1e-5, proof.unit, proof.relation)
    part = Pair(staircase(law)(1.0 / count), staircase(law)(0.0))
    assert epsilon is not None and Composed([part] * count).epsilon(1e-5) > 1.2 * epsilon


def test_the_noise_that_the_attack_speaks_of_is_the_one_that_is_drawn() -> None:
    """Its step is the norm, and its scale the norm times the multiplier."""
    claim, middles = Claim(Unit.CLIENT, Relation.ADD_REMOVE, POPULATION, 1).clipped(NORM, 1), EDGES[1:-2] + 1 / 64
    for law, density in ((Laplace(1.0), laplace(Laplace(1.0))), (Staircase(0.7), staircase(Staircase(0.7)))):
        square = float((density(0.0)[1:-1] * middles**2).sum())
        assert law.stddev(claim) == pytest.approx(NORM * square**0.5, rel=1e-2)
