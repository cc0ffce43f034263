"""Pairs of worlds written out, whose losses are sums or quadratures: Laplace in an L2 ball, discrete shares, control variates."""

from __future__ import annotations

import math
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from sfumato import (  # fmt: skip
    AddNoise,
    Clip,
    ControlVariates,
    DiscreteGaussian,
    Everyone,
    FixedSize,
    Gaussian,
    Grid,
    Laplace,
    Mean,
    NoiseShare,
    Poisson,
    Relation,
    Round,
    SecureSum,
    Sgd,
)
from sfumato.account.event import Event, FixedSizeSampled, GaussianEvent
from sfumato.claim import Reach
from tests.attacks.losses import Array, Composed, Pair
from tests.attacks.search import DELTAS, printed
from tests.attacks.semantics import Chosen, cohorts


def largest(event: Event, proof: Any, tried: list[Composed], rounds: int = 1) -> list[float]:
    """How much of the printed epsilon the attacks attain at each delta, which is never more than all."""
    shares = []
    for delta in DELTAS:
        epsilon = printed(event, rounds, delta, proof.unit, proof.relation)
        assert epsilon is not None
        shares.append(max(one.epsilon(delta) for one in tried) / epsilon)
    assert max(shares) <= 1.0, shares
    return shares


def laplace_cells(scale: float, move: Array, cells: int) -> tuple[Array, Array]:
    """Chances of cells with and without the move: nothing is lost outside of [0, move], where the loss does not change."""

    def below(at: Array) -> Array:
        return np.asarray(0.5 + np.sign(at) * -np.expm1(-np.abs(at) / scale) / 2)

    def joint(moved: bool) -> Array:
        edges = [np.concatenate([[-np.inf], np.linspace(0.0, far, cells), [np.inf]]) for far in move if far]
        masses = [np.diff(below(one - moved * one[-2])) for one in edges]
        return np.asarray(reduce(np.multiply.outer, masses)).ravel()

    return joint(True), joint(False)


@pytest.mark.parametrize(("dimension", "cells"), [(1, 1000), (2, 120), (3, 30)])
def test_laplace_noise_under_an_l2_clip(dimension: int, cells: int) -> None:
    """Far below the Gaussian limit the worst row of the ball is not the same at every delta: along an axis, or in between."""
    directions = [np.eye(dimension)[0], np.ones(dimension), np.arange(1.0, dimension + 1)]
    for scale, sample, rounds in product((0.4, 2.0), (Everyone(), Poisson(0.3)), (1, 2)):
        law = Laplace(scale, order=2)
        slots = {"local": Chosen(), "client": (Clip(0.5),), "aggregate": Mean(2.0), "server": (AddNoise(law),)}
        proof = Round(sample=sample, **slots).derive(population=4, dimension=dimension).primary
        rate = sample.rate if isinstance(sample, Poisson) else 1.0
        tried = []
        for direction in directions:
            moved, still = laplace_cells(scale, direction / np.linalg.norm(direction), cells)
            pair = Pair((1 - rate) * still + rate * moved, still)
            tried += [Composed([way] * rounds) for way in (pair, pair.reversed)]
        assert proof.world is not None
        assert max(largest(proof.world, proof, tried, rounds)) > 0.95


def test_a_ball_priced_as_one_dimension_would_be_caught() -> None:
    """Along the diagonal the losses of single coordinates add up to more than one coordinate's at the whole distance."""
    price = Laplace(2.0).event(2.0 * math.sqrt(2.0), Reach(1.0, 1.0, 1))
    proof = Round(
        sample=Everyone(), local=Chosen(), client=(Clip(1.0, 1),), aggregate=Mean(2.0), server=(AddNoise(Laplace(2.0)),)
    ).derive(population=4, dimension=1).primary  # fmt: skip
    assert price == proof.world
    attack = Composed([Pair(*laplace_cells(2.0, np.ones(3) / math.sqrt(3.0), 30))])
    with pytest.raises(AssertionError):
        largest(price, proof, [attack])


def discrete(deviation: float, shares: int) -> Array:
    """The chances of a sum of discrete Gaussians, in steps: of each share by its formula, and of the sum by all its terms."""
    steps = np.arange(-200, 201)
    one = np.exp(-(steps**2) / (2 * deviation**2))
    return reduce(np.convolve, [one / one.sum()] * shares)


@pytest.mark.parametrize("noise", [0.5, 1.5])
def test_shares_of_a_discrete_gaussian(noise: float) -> None:
    """Steps as coarse as half the norm, and shares of a fraction of a step: sums are then far from a discrete Gaussian."""
    shares, step = 2, 0.5
    client = (Clip(1.0), Grid(bits=1), NoiseShare(DiscreteGaussian(noise), shares))
    sample = Everyone(Relation.REPLACE)  # of three, one of whom is curious
    round = Round(sample=sample, local=Chosen(), client=client, channel=SecureSum(), aggregate=Mean(1.0))
    for dimension, moves in ((1, [(4,)]), (2, [(4, 0), (2, 2)])):
        proof = round.derive(population=3, dimension=dimension).primary
        assert proof.stddev is not None and proof.world is not None
        chances = discrete(proof.stddev / step / math.sqrt(shares), shares)
        tried = []
        for move in moves:
            pairs = [Pair(np.append(np.zeros(far), chances), np.append(chances, np.zeros(far))) for far in move if far]
            kept = [Pair(one.one[both], one.other[both]) for one in pairs for both in [one.one + one.other > 1e-200]]
            tried.append(Composed(kept))
        assert max(largest(proof.world, proof, tried)) > 0.85


CLIENTS, SIZE, NORM, DEVIATION = 4, 2, 1.0, 2.0
PLACES = np.linspace(-2 * NORM - 8 * DEVIATION, 2 * NORM + 8 * DEVIATION, 240)


def normal(mean: Any) -> Array:
    """Chances of the places on a line, around one mean for each line."""
    width = PLACES[1] - PLACES[0]
    there = np.exp(-((PLACES - np.asarray(mean)[..., None]) ** 2) / (2 * DEVIATION**2))
    return np.asarray(there * width / math.sqrt(2 * math.pi) / DEVIATION)


def two_rounds(victim: float, others: float) -> Array:
    """What two sums show, if clients with constant gradients correct them by what they remember: over all pairs of cohorts."""
    sample, piece, length = FixedSize(SIZE, Relation.REPLACE, curious=0), ControlVariates(), 1.0
    seen = torch.from_numpy(PLACES)  # one coordinate for each place where the first sum may lie
    wants = torch.tensor([victim] + [others] * (CLIENTS - 1), dtype=torch.float64)[:, None].expand(-1, len(seen))
    sent, nothing = wants.clamp(-NORM, NORM), torch.zeros_like(seen)
    kept = piece.remember(torch.zeros_like(wants), nothing, sent, length)
    shared = piece.follow(nothing, seen / SIZE, length, SIZE / CLIENTS)
    total = np.zeros((len(PLACES),) * 2)
    for (chance, first), (again, second) in product(cohorts(sample, CLIENTS), repeat=2):
        own = torch.stack([kept[i] if i in first else nothing for i in second])
        means = (wants[list(second)] - length * piece.correction(own, shared)).clamp(-NORM, NORM).sum(0).numpy()
        total += chance * again * normal(float(sent[list(first), 0].sum()))[:, None] * normal(means)
    return total.ravel()


def test_control_variates_in_cohorts_of_fixed_size() -> None:
    """What a client sends again depends on whether it was drawn before; priced as a mixture over participation, that holds."""
    sample = FixedSize(SIZE, Relation.REPLACE, curious=0)
    slots = {"client": (Clip(NORM),), "aggregate": Mean(2.0), "server": (AddNoise(Gaussian(DEVIATION)),)}
    round = Round(sample=sample, local=Sgd(lr=0.1, steps=2), personal=ControlVariates(), **slots)
    proof = round.derive(population=CLIENTS, dimension=1).primary
    assert proof.world is not None and not isinstance(proof.world, FixedSizeSampled | GaussianEvent)
    tried = []
    for much, others in product((NORM, 2 * NORM), (-2 * NORM, 0.0, NORM)):
        there, other = (two_rounds(victim, others) for victim in (much, -much))
        assert there.sum() == pytest.approx(1.0, abs=1e-9)
        tried += [Composed([Pair(there, other)]), Composed([Pair(other, there)])]
    assert max(largest(proof.world, proof, tried, rounds=2)) > 0.3
