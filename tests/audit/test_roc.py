"""Rates, bands and areas against slow twins that count."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sfumato.audit.membership import likelihood_ratios, relative
from sfumato.audit.roc import Roc, by_coin, clopper_pearson, over
from sfumato.key import Key


def scored(ties: bool = False, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    member = Key.from_seed(1).uniform(count) < 0.4
    scores = Key.from_seed(2).normal(count).numpy() + member
    return (np.round(scores) if ties else scores), member


def rates(scores: np.ndarray, member: np.ndarray, threshold: float) -> tuple[float, float]:
    called = [score >= threshold for score in scores]
    true = sum(1 for yes, held in zip(called, member, strict=True) if yes and held) / member.sum()
    return true, sum(1 for yes, held in zip(called, member, strict=True) if yes and not held) / (~member).sum()


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.001, 0.01, 0.1, 0.5, 1.0])
def test_true_positives_at_a_rate_are_those_of_the_best_threshold(ties: bool, rate: float) -> None:
    scores, member = scored(ties)
    slow = [rates(scores, member, threshold) for threshold in [*scores, math.inf]]
    assert Roc.of(scores, member).at(rate) == pytest.approx(max(true for true, false in slow if false <= rate))


@pytest.mark.parametrize("ties", [False, True])
def test_area_and_accuracy_count_pairs_and_thresholds(ties: bool) -> None:
    scores, member = scored(ties)
    pairs = [(a > b) + (a == b) / 2 for a in scores[member] for b in scores[~member]]
    slow = [rates(scores, member, threshold) for threshold in [*scores, math.inf]]
    roc = Roc.of(scores, member)
    assert roc.area == pytest.approx(np.mean(pairs))
    assert roc.accuracy == pytest.approx(max((true + 1 - false) / 2 for true, false in slow))
    low, high = roc.area_band
    assert low < roc.area < high


def test_perfect_scores_and_broken_ones() -> None:
    member = np.array([True] * 20 + [False] * 20)
    best = Roc.of(np.where(member, math.inf, -math.inf), member)
    assert (best.area, best.accuracy, best.at(0.001)) == (1.0, 1.0, 1.0)
    broken = Roc.of(np.full(40, math.nan), member)
    assert (broken.area, broken.at(0.01)) == (0.5, 0.0)


def exact_tail(hits: int, count: int, share: Fraction) -> Fraction:
    return sum(
        (math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(hits, count + 1)), Fraction(0)
    )


@pytest.mark.parametrize(("hits", "count"), [(0, 7), (1, 7), (5, 12), (12, 12)])
def test_clopper_pearson_is_where_exact_tails_reach_a_fortieth(hits: int, count: int) -> None:
    low, high = clopper_pearson(hits, count)
    above = float(exact_tail(hits, count, Fraction(low)))
    below = 1.0 - float(exact_tail(hits + 1, count, Fraction(high)))
    assert low == 0.0 if hits == 0 else above == pytest.approx(0.025)
    assert high == 1.0 if hits == count else below == pytest.approx(0.025)


def test_a_band_covers_the_truth_as_often_as_it_says() -> None:
    """Thresholds are fixed by many others, so the rate of true positives is binomial with a known share."""
    others = np.linspace(0.0, 1.0, 1000)
    inside = 0
    for draw in range(200):
        scores = np.concatenate([others, 2.0 * (Key.from_seed(draw).uniform(100) < 0.3)])
        low, high = Roc.of(scores, np.arange(1100) >= 1000).band(0.001)
        inside += low <= 0.3 <= high
    assert inside >= 184  # 190 expected at least; fewer than 184 have a chance below 1e-2 at 95 %


def test_a_coin_reaches_more_than_a_half_in_hindsight() -> None:
    found = by_coin(np.arange(60) < 30, Key.from_seed(0))
    assert 0.55 < found["accuracy"] < 0.75 and 0.5 < found["auc"] < 0.7
    assert by_coin(np.arange(2000) < 1000, Key.from_seed(0))["accuracy"] < 0.54


def test_the_mean_over_models_and_its_interval() -> None:
    mean, (low, high) = over(np.array([0.4, 0.6, 0.5]))
    expected = stats.t.interval(0.95, 2, 0.5, np.std([0.4, 0.6, 0.5], ddof=1) / math.sqrt(3))
    assert (mean, low, high) == pytest.approx((0.5, *expected))


def slow_lira(confidences: np.ndarray, inside: np.ndarray, online: bool) -> list[float]:
    """Unit by unit, shadow by shadow."""
    shadows, units = inside.shape
    found, spreads = [], {}
    means = {
        side: [np.mean([confidences[s, u] for s in range(shadows) if inside[s, u] == side]) for u in range(units)]
        for side in (True, False)
    }
    for side in (True, False):
        off = [
            (confidences[s, u] - means[side][u]) ** 2
            for s in range(shadows)
            for u in range(units)
            if inside[s, u] == side
        ]
        spreads[side] = math.sqrt(sum(off) / (len(off) - units))
    for u in range(units):
        out = stats.norm(means[False][u], spreads[False])
        if online:
            found.append(
                stats.norm(means[True][u], spreads[True]).logpdf(confidences[-1, u]) - out.logpdf(confidences[-1, u])
            )
        else:
            found.append(-out.logsf(confidences[-1, u]))
    return found


@pytest.mark.parametrize("online", [True, False])
def test_lira_is_its_slow_twin(online: bool) -> None:
    confidences = Key.from_seed(0).normal(7, 5).numpy()
    inside = np.array([[s % 2 == u % 2 for u in range(5)] for s in range(6)])
    expected = slow_lira(confidences, inside, online)
    assert likelihood_ratios(confidences, inside, online) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("gamma", [1.0, 1.5])
def test_rmia_counts_the_units_that_are_beaten(gamma: float) -> None:
    losses = Key.from_seed(0).normal(7, 9).numpy() ** 2
    ratios = [math.exp(-losses[-1, u]) / np.mean(np.exp(-losses[:-1, u])) for u in range(9)]
    expected = [sum(one >= gamma * other for other in ratios) / 9 for one in ratios]
    assert relative(losses, gamma) == pytest.approx(expected)
