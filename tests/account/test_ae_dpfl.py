"""The corrected lemmas of AE-DPFL hold against exact divergences of noisy labels; what is printed there does not."""

from __future__ import annotations

import ast
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from sfumato.account.papers.ae_dpfl import (
    chance_of_another,
    chance_of_plurality,
    diagnostic_by_lemma_13,
    diagnostic_by_papernot,
    gaussian_renyi,
    label_chances,
    lemma_13,
    margin_needed,
    theorem_14_as_published,
)

CASES = [([6, 1], 1.0), ([9, 2, 2], 1.2), ([14, 1], 1.0), ([30, 4, 2, 0], 3.0), ([3, 3, 1], 2.0)]
ORDERS = (1.5, 2.0, 8.0)


def exact(order: float, here: list[int], beside: list[int], stddev: float) -> float:
    """The Renyi divergence of the noisy labels of two histograms."""
    first, second = (np.log(label_chances(votes, stddev)) for votes in (here, beside))
    return float(np.logaddexp.reduce(order * first - (order - 1.0) * second)) / (order - 1.0)


def joined(votes: list[int], swapped: bool) -> list[list[int]]:
    """All histograms with one more ballot, one less, or one that is another (`swapped`)."""
    units = np.eye(len(votes), dtype=int)
    moves = [one - other for one, other in product(units, units)] if swapped else [*units, *-units]
    return [(np.array(votes) + move).tolist() for move in moves if (np.array(votes) + move >= 0).all()]


def test_theorem_14_as_published_is_false() -> None:
    """By quadrature, and by the closed form for two classes."""
    there, back = exact(8.0, [14, 0], [15, 0], 1.0), exact(8.0, [13, 0], [14, 0], 1.0)
    assert (there, back) == pytest.approx((0.0449, 0.350), rel=2e-3)
    wrong = norm.logsf(np.array([14.0, 15.0]) / math.sqrt(2.0))
    assert there == pytest.approx(np.logaddexp(8 * wrong[0] - 7 * wrong[1], 0.0) / 7, rel=1e-6)
    assert theorem_14_as_published(8.0, 14.0, 1.0, 2) == pytest.approx(0.00245, rel=2e-3)


@pytest.mark.parametrize(("votes", "stddev"), CASES)
def test_the_corrected_values_are_no_smaller_than_exact_ones(votes: list[int], stddev: float) -> None:
    for order in ORDERS:
        for other in joined(votes, swapped=False):
            both = max(exact(order, votes, other, stddev), exact(order, other, votes, stddev))
            assert both <= diagnostic_by_lemma_13(votes, stddev, order) * (1 + 1e-9) + 1e-12
        for other in joined(votes, swapped=True):
            assert exact(order, votes, other, stddev) <= diagnostic_by_papernot(votes, stddev, order) + 1e-12
            twice = diagnostic_by_lemma_13(votes, stddev, order, math.sqrt(2.0), 2.0)
            assert exact(order, other, votes, stddev) <= twice * (1 + 1e-9) + 1e-12


def test_the_check_above_finds_the_printed_mistakes() -> None:
    """Without the neighbour's own chance, or with half the exponent, some exact divergence is larger."""
    independent = gaussian_renyi(1.0, 1.0)
    other, beside = (chance_of_another([14, 0], 1.0, less) for less in (0.0, 1.0))
    assert exact(8.0, [13, 0], [14, 0], 1.0) > lemma_13(8.0, other, other, lambda order: independent(order) / 2)
    assert exact(8.0, [13, 0], [14, 0], 1.0) < lemma_13(8.0, beside, other, independent)


@pytest.mark.parametrize(("votes", "stddev"), CASES)
def test_lemma_12_is_a_lower_bound_and_its_margin_is_enough(votes: list[int], stddev: float) -> None:
    first, second = sorted(votes, reverse=True)[:2]
    chances = label_chances(votes, stddev)
    assert chances.sum() == pytest.approx(1.0, abs=1e-9)
    assert chances[0] >= chance_of_plurality(first - second, stddev, len(votes))
    assert chances[0] >= 1.0 - chance_of_another(votes, stddev) - 1e-12
    margin = margin_needed(stddev, len(votes), 0.1)
    assert chance_of_plurality(margin, stddev, len(votes)) == pytest.approx(0.9)
    printed = margin / stddev * 0.5  # the paper's threshold does not grow with the noise
    assert chance_of_plurality(printed, 4.0 * stddev, len(votes)) < 0.9


def test_nothing_that_makes_a_guarantee_reads_them() -> None:
    """A value of private votes stays a diagnostic: neither the derivation, the accountants, a ledger nor a piece imports it."""
    source = Path(__file__).parents[2] / "src" / "sfumato"
    rooms = [source / name for name in ("pieces", "local", "voting", "ledger", "engine", "run", "budget", "account")]
    files = [*source.glob("*.py"), *(path for room in rooms for path in room.rglob("*.py"))]
    assert len(files) > 60
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Import | ast.ImportFrom) and "ae_dpfl" in ast.unparse(node)), path
