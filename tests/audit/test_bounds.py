"""Bounds on epsilon from scores: closed forms, coverage on exact mechanisms, and a bound that is too eager is caught."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sfumato import AddNoise, Clip, Everyone, Gaussian, Mean, Poisson, Round, Sgd
from sfumato.account import accountant
from sfumato.account.event import GaussianEvent, PoissonSampled, Repeated, Unit
from sfumato.account.gdp import gdp_epsilon
from sfumato.audit.bounds import (
    Errors,
    bayesian,
    clopper_pearson,
    epsilon_lower_bound,
    epsilon_of_rates,
    gaussian_fit,
    upper_limit,
)
from sfumato.audit.family import Family, rejects
from sfumato.errors import BadValue
from sfumato.key import Key

DELTA = 1e-5
REPEATS, RUNS = 200, 300
_MOST = 20  # of 200 repeats at 5 percent: more has a chance of 0.2 percent


def _round(sample: object, noise: float) -> Round:
    return Round(
        sample=sample,  # type: ignore[arg-type]
        local=Sgd(lr=0.1, epochs=1),
        client=(Clip(1.0),),
        aggregate=Mean(over=5.0),
        server=(AddNoise(Gaussian(noise)),),
    )


def family_of(sample: object, noise: float, rounds: int) -> Family:
    found = Family.of(_round(sample, noise), population=100, dimension=4, unit=Unit.CLIENT, rounds=rounds)
    assert found is not None
    return found


def _ratios(rate: float, noise: float, rounds: int, present: bool, key: Key, runs: int = RUNS) -> np.ndarray:
    """Log-likelihood ratios of the exact mechanism."""
    drawn = key.child("drawn").uniform(runs * rounds).reshape(runs, rounds) < rate
    value = key.child("noise").normal(runs, rounds, stddev=noise).numpy() + drawn * present
    return np.asarray(np.log1p(rate * np.expm1((value - 0.5) / noise**2)).sum(1))


def test_the_limit_is_that_of_clopper_and_pearson() -> None:
    for count, trials, alpha in ((0, 10, 0.05), (3, 10, 0.01), (199, 200, 0.2)):
        limit = upper_limit(count, trials, alpha)
        assert stats.binom.cdf(count, trials, limit) == pytest.approx(alpha)
    assert upper_limit(10, 10, 0.05) == 1.0


def test_errors_are_counted_by_a_loop_too() -> None:
    absent, present = np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.5, 3.0, 4.0])
    found = Errors.of(absent, present, 1.0)
    assert (found.false_positives, found.absent) == (sum(score > 1.0 for score in absent), 3)
    assert (found.false_negatives, found.present) == (sum(not score > 1.0 for score in present), 4)
    with pytest.raises(BadValue, match="both worlds"):
        Errors.of(absent, np.array([]), 1.0)


def test_perfect_scores_show_the_log_of_the_number_of_runs_and_no_more() -> None:
    errors = Errors(0, 1000, 0, 1000)
    limit = upper_limit(0, 1000, 0.025)
    assert clopper_pearson(errors, 0.0, 0.05) == pytest.approx(math.log((1 - limit) / limit))
    assert epsilon_of_rates(0.0, 0.5, 0.0) == math.inf
    assert epsilon_of_rates(0.5, 0.5, 0.0) == 0.0


def test_useless_scores_show_nothing() -> None:
    errors = Errors(500, 1000, 500, 1000)
    assert clopper_pearson(errors, DELTA, 0.05) == bayesian(errors, DELTA, 0.05) == 0.0
    assert family_of(Everyone(), 1.0, 1).lower_bound(errors, DELTA, 0.05) == 0.0


def test_the_bayesian_bound_is_that_of_draws_from_the_posterior() -> None:
    errors, key = Errors(30, 500, 200, 500), Key.from_seed(1)
    x = stats.beta.ppf(key.child("x").uniform(200_000), 30.5, 470.5)
    y = stats.beta.ppf(key.child("y").uniform(200_000), 200.5, 300.5)
    drawn = np.maximum(np.log((1 - DELTA - y) / x), np.log((1 - DELTA - x) / y))
    assert bayesian(errors, DELTA, 0.05) == pytest.approx(np.quantile(drawn, 0.05), abs=0.005)


SOUND = [("everyone", 1.0, 1.0, 1), ("poisson", 0.5, 1.0, 3)]


@pytest.mark.parametrize(("name", "rate", "noise", "rounds"), SOUND)
def test_bounds_cover_the_truth_of_exact_mechanisms(name: str, rate: float, noise: float, rounds: int) -> None:
    """At 95 percent they exceed it in about 5 of 100 repeats at most; a family without limits of rates does so often."""
    family = family_of(Everyone() if rate == 1.0 else Poisson(rate), noise, rounds)
    event, root = family.event(noise), Key.from_seed(7).child(name)
    assert event is not None
    truth = accountant().epsilon(event, DELTA)
    above = {"family": 0, "clopper_pearson": 0, "bayesian": 0, "eager": 0}
    for repeat in range(REPEATS):
        scores = [_ratios(rate, noise, rounds, bool(w), root.child("r", n=repeat, w=w)) for w in (0, 1)]
        errors = Errors.of(scores[0], scores[1], 0.3)
        above["family"] += rejects(event, *errors.upper(0.05))  # exactly when the family's bound exceeds the truth
        above["clopper_pearson"] += clopper_pearson(errors, DELTA, 0.05) > truth
        above["bayesian"] += repeat % 5 == 0 and bayesian(errors, DELTA, 0.05) > truth
        above["eager"] += rejects(event, errors.false_positives / RUNS, errors.false_negatives / RUNS)
    assert above["family"] <= _MOST and above["clopper_pearson"] <= _MOST and above["bayesian"] <= 7
    assert above["eager"] > _MOST, "taking rates as they were seen must be caught"


def test_the_fit_covers_gaussian_events() -> None:
    family, root = family_of(Everyone(), 1.0, 2), Key.from_seed(3)
    event = family.event(1.0)
    assert event is not None
    truth, above = accountant().epsilon(event, DELTA), 0
    for repeat in range(REPEATS):
        scores = [_ratios(1.0, 1.0, 2, bool(w), root.child("r", n=repeat, w=w)) for w in (0, 1)]
        above += gaussian_fit(scores[0], scores[1], DELTA, 0.05) > truth
    assert 1 <= above <= _MOST  # and it is no bound that never comes near


def test_a_gaussian_curve_is_no_family_of_a_sampled_event() -> None:
    """The errors of a far threshold are those of a Gaussian with less noise than any that costs what the sampled event does."""
    event = Repeated(PoissonSampled(0.05, GaussianEvent(0.5)), 5)
    scores = [_ratios(0.05, 0.5, 5, bool(w), Key.from_seed(19).child("w", n=w), 100_000) for w in (0, 1)]
    limits = Errors.of(scores[0], scores[1], 1.0).upper(0.05)
    mu = stats.norm.isf(limits[0]) - stats.norm.ppf(limits[1])
    assert not rejects(event, *limits)
    assert gdp_epsilon(mu, 0.05) > accountant().epsilon(event, 0.05)


def test_the_fit_is_close_to_the_truth() -> None:
    family, root = family_of(Everyone(), math.sqrt(5.0), 5), Key.from_seed(5)
    event = family.event(family.noise)
    assert event is not None
    truth = accountant().epsilon(event, DELTA)
    scores = [_ratios(1.0, math.sqrt(5.0), 5, bool(w), root.child("w", n=w), 2000) for w in (0, 1)]
    assert 0.85 * truth < gaussian_fit(scores[0], scores[1], DELTA, 0.05) < truth


def test_the_family_says_much_more_than_rates_alone() -> None:
    family, root = family_of(Poisson(0.5), 2.0, 10), Key.from_seed(11)
    event = family.event(2.0)
    assert event is not None
    truth = accountant().epsilon(event, DELTA)
    scores = [_ratios(0.5, 2.0, 10, bool(w), root.child("w", n=w), 2000) for w in (0, 1)]
    errors = Errors.of(scores[0], scores[1], 0.4)
    assert 0.7 * truth < family.lower_bound(errors, DELTA, 0.05) < truth
    assert clopper_pearson(errors, DELTA, 0.05) < 0.5 * truth


def test_a_family_finds_how_little_noise_there_is() -> None:
    """Scores of half the stated noise reject the stated event, and the bound lies between both truths."""
    family, root = family_of(Everyone(), 2.0, 1), Key.from_seed(13)
    stated, real = family.event(2.0), family.event(1.0)
    assert stated is not None and real is not None
    scores = [_ratios(1.0, 1.0, 1, bool(w), root.child("w", n=w), 4000) for w in (0, 1)]
    errors = Errors.of(scores[0], scores[1], 0.0)
    assert rejects(stated, *errors.upper(1e-6))
    price = accountant()
    assert price.epsilon(stated, DELTA) < family.lower_bound(errors, DELTA, 1e-6) < price.epsilon(real, DELTA)


def test_a_score_that_is_no_number_is_an_error_of_one_world() -> None:
    """A test must say something of it, in both worlds the same: else scores that know nothing would seem to know all."""
    nothing = np.full(100, np.nan)
    assert Errors.of(nothing, nothing, 0.0) == Errors(100, 100, 0, 100)
    assert clopper_pearson(Errors.of(nothing, nothing, 0.0), 1e-5, 0.05) == 0.0


def test_thresholds_are_chosen_by_scores_that_are_not_counted() -> None:
    """The best of a hundred thresholds on pure noise: a bound that counted the scores that chose would exceed 0 more often."""
    root, above = Key.from_seed(17), 0
    for repeat in range(100):
        absent, present = root.child("r", n=repeat).normal(2, 400).numpy()
        above += epsilon_lower_bound(absent, present, 1e-3, 0.95) > 0.0
    assert above <= 10
