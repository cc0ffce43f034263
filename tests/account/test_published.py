"""What PriFedSync claims, and what is wrong or loose about it; ours is what its recipe derives."""

from __future__ import annotations

import math

import pytest
from typer.testing import CliRunner

from sfumato.account import accountant
from sfumato.account.event import Repeated
from sfumato.account.gdp import gdp_epsilon
from sfumato.account.papers.prifedsync import Published, p_squared_attained, p_squared_claim
from sfumato.commands.app import app
from sfumato.recipes import build

RUN = Published(share=16 / 600, steps=38, rounds=194, sigma=1.0, rate=0.5, clients=100)


def test_the_papers_claims() -> None:
    weak, strong = RUN.claims(1e-5)
    assert weak.mu == RUN.mu == pytest.approx(3.92, abs=0.006)
    assert weak.epsilon == pytest.approx(23.7, abs=0.05)
    assert strong.mu == pytest.approx(math.sqrt(99) * RUN.mu)
    assert strong.epsilon == pytest.approx(gdp_epsilon(math.sqrt(99) * RUN.mu, 1e-5))


def test_the_central_limit_is_below_the_truth_for_few_rounds() -> None:
    for sigma, limit, exact in ((1.0, 1.054, 1.442), (0.75, 1.972, 3.115)):
        assert Published(16 / 600, 38, 1, sigma, 1.0, 100).claims(1e-5)[0].epsilon == pytest.approx(limit, abs=0.002)
        proof = build("prifedsync", 100, {"noise_multiplier": 2 * sigma}).derive(population=100, dimension=5).primary
        assert proof.chooser is not None
        assert accountant().epsilon(proof.chooser, 1e-5) == pytest.approx(exact, abs=0.002)


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


def test_explain_shows_ours_beside_the_papers_and_says_what_is_wrong() -> None:
    words = (
        CliRunner()
        .invoke(app, ["explain", "prifedsync", "--clients", "100", "--rounds", "194", "--delta", "1e-5"])
        .output
    )
    assert "whoever chooses the cohort   22.28" in words and "if it samples honestly       14.53" in words
    assert "mu 3.92, epsilon 23.69 (claimed)" in words
    assert "false over several rounds" in words and "0.5 in total variation" in words and "0.4375" in words
    assert "p^2" not in Published(16 / 600, 38, 194, 1.0, 1.0, 100).text(1e-5)


def test_ours_is_the_recipes_own_derivation() -> None:
    proof = build("prifedsync", 100, {}).derive(population=100, dimension=5).primary
    assert proof.server is not None and proof.chooser is not None
    assert accountant().epsilon(Repeated(proof.server, 194), 1e-5) == pytest.approx(14.52, abs=0.01)
    assert accountant().epsilon(Repeated(proof.chooser, 194), 1e-5) == pytest.approx(22.28, abs=0.01)
