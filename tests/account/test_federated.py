"""Weak and strong federated privacy: ours beside the paper's."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sfumato.account.gdp import gdp_epsilon
from sfumato.account.papers.dp_fed_ls import prifedsync_mu
from sfumato.account.papers.prifedsync import (
    EVERY_ROUND,
    PAPER_STRONG,
    PAPER_WEAK,
    PARTICIPATION,
    Federated,
    p_squared_attained,
    p_squared_claim,
)
from sfumato.recipes import build

RUN = Federated(share=16 / 600, steps=38, rounds=194, sigma=1.0, rate=0.5, clients=100)


def test_ours_beside_the_papers() -> None:
    said = {line.name: line for line in RUN.statements(1e-5)}
    assert said[EVERY_ROUND].epsilon == pytest.approx(22.28, abs=0.01)
    assert said[PARTICIPATION].epsilon == pytest.approx(14.52, abs=0.01)
    assert said[PAPER_WEAK].mu == pytest.approx(prifedsync_mu(600, 16, 38, 194, 1.0)) == pytest.approx(3.92, abs=0.006)
    assert said[PAPER_WEAK].epsilon == pytest.approx(23.7, abs=0.05)
    assert said[PAPER_STRONG].mu == pytest.approx(math.sqrt(99) * RUN.mu)
    assert said[PAPER_STRONG].epsilon == pytest.approx(gdp_epsilon(math.sqrt(99) * RUN.mu, 1e-5))
    assert [line.proven for line in said.values()] == [True, True, False, False]


def test_the_central_limit_is_below_the_truth_for_few_rounds() -> None:
    for sigma, limit, exact in ((1.0, 1.054, 1.442), (0.75, 1.972, 3.115)):
        one = Federated(16 / 600, 38, 1, sigma, 1.0, 100)
        claimed = next(line for line in one.statements(1e-5) if line.name == PAPER_WEAK)
        assert claimed.epsilon == pytest.approx(limit, abs=0.002)
        assert one.every_round(1e-5) == pytest.approx(exact, abs=0.002)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_amplification_by_the_square_is_false(rate: float) -> None:
    assert p_squared_attained(rate) > p_squared_claim(rate, 2)
    assert p_squared_attained(rate) == pytest.approx(_enumerated(rate))


def _enumerated(rate: float) -> float:
    """All ways in which two clients are drawn in two rounds; the one that looks sees what the global model remembers."""
    total = 0.0
    for drawn in range(16):
        looker, other = [bool(drawn & bit) for bit in (1, 2)], [bool(drawn & bit) for bit in (4, 8)]
        chance = math.prod(rate if one else 1 - rate for one in (*looker, *other))
        if (looker[0] and other[0]) or (looker[1] and (other[0] or other[1])):
            total += chance
    return total


def test_the_block_says_what_is_wrong() -> None:
    words = RUN.text(1e-5)
    assert "epsilon 22.28" in words and "epsilon 14.53" in words  # rounded up
    assert "mu 3.92, epsilon 23.69 (claimed)" in words
    assert "false over several rounds" in words and "0.5 in total variation" in words and "0.4375" in words
    assert "p^2" not in Federated(16 / 600, 38, 194, 1.0, 1.0, 100).text(1e-5)


def test_it_is_read_from_what_a_round_costs() -> None:
    event = build("prifedsync", 100, {}).derive(population=100, dimension=5).primary.world
    assert Federated.of(event, 100, 194) == RUN
    everyone = build("prifedsync", 100, {"sample": "everyone"}).derive(population=100, dimension=5).primary.world
    assert Federated.of(everyone, 100, 194) == replace(RUN, rate=1.0)
    for other in ({"batch": "poisson:0.02"}, {"batch": "everyone"}):
        event = build("prifedsync", 100, other).derive(population=100, dimension=5).primary.world
        assert Federated.of(event, 100, 194) is None
