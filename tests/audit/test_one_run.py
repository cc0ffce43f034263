"""One run with many canaries: both bounds against slow twins, and their coverage on an exact mechanism."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm

from sfumato import Everyone
from sfumato.account import accountant
from sfumato.account.event import GaussianEvent
from sfumato.audit.one_run import Guesses, chance_under_privacy, curve, f_dp, rejects_guesses, steinke
from sfumato.key import Key
from tests.audit.test_bounds import family_of


def _randomised_response(epsilon: float, canaries: int, guesses: int, key: Key) -> Guesses:
    """Each coin is told truly with odds e^epsilon: what dominates every epsilon-private mechanism."""
    right = int((key.uniform(guesses) < 1 / (1 + math.exp(-epsilon))).sum())
    return Guesses(canaries, guesses, right)


def test_randomised_response_is_covered_and_nearly_met() -> None:
    root = Key.from_seed(1)
    found = [steinke(_randomised_response(1.0, 500, 500, root.child("r", n=n)), 0.0, 0.05) for n in range(200)]
    assert sum(one > 1.0 for one in found) <= 20
    assert np.mean(found) > 0.75


def test_the_delta_term_by_a_loop() -> None:
    guesses, epsilon, delta = Guesses(50, 20, 17), 0.7, 1e-4
    odds = math.exp(epsilon) / (1 + math.exp(epsilon))
    tail = [
        sum(math.comb(20, t) * odds**t * (1 - odds) ** (20 - t) for t in range(max(0, v), 21)) for v in range(-5, 22)
    ]
    at = {v: tail[v + 5] for v in range(-5, 22)}
    worst = max((at[17 - i] - at[17]) / i for i in range(1, 18))
    assert chance_under_privacy(guesses, epsilon, delta) == pytest.approx(at[17] + 2 * 50 * delta * worst)


def test_a_large_delta_makes_it_vacuous() -> None:
    guesses = Guesses(1000, 200, 180)
    assert steinke(guesses, 2.9e-3, 0.05) == 0.0 < 1.0 < steinke(guesses, 1e-6, 0.05)


def _largest_chance(guesses: Guesses, mu: float) -> float:
    """The linear programme: the largest chance of so many right guesses that the inequalities of the proof allow.

    The curve's lines make X_i <= 1 - f(Y_{i-1}) linear: f is the largest of its tangents.
    """
    m, k, v = guesses.canaries, guesses.made, guesses.right
    t = np.arange(k + 1)
    rows, limits = [], []
    for cut in np.linspace(-4.0, 4.0, 81):
        fpr = norm.sf(cut)
        slope = -math.exp(mu * cut - mu**2 / 2)
        value = norm.cdf(cut - mu)  # f at fpr, whose tangent is value + slope (y - fpr)
        for i in range(1, k + 1):
            row = np.where(t >= i, t / m, 0.0) + slope * np.where(t >= i - 1, (k - t) / m, 0.0)
            rows.append(row)
            limits.append(1 - value + slope * fpr)
    found = linprog(-(t >= v).astype(float), A_ub=np.array(rows), b_ub=limits, A_eq=np.ones((1, k + 1)), b_eq=[1.0])
    return float(-found.fun)


@pytest.mark.parametrize("right", [8, 9])
def test_the_steps_down_solve_the_linear_programme(right: int) -> None:
    guesses, event = Guesses(10, 10, right), GaussianEvent(1.0)
    chance = _largest_chance(guesses, 1.0)
    assert 0.0 < chance < 1.0
    assert not rejects_guesses(guesses, curve(event), 0.97 * chance)
    assert rejects_guesses(guesses, curve(event), min(1.0, 1.03 * chance))


def test_both_bounds_cover_a_gaussian_mechanism() -> None:
    """Independent canaries in orthonormal directions: the curve's bound is larger, and neither exceeds the truth often."""
    family, root = family_of(Everyone(), 1.0, 1), Key.from_seed(3)
    event = family.event(1.0)
    assert event is not None
    truth = accountant().epsilon(event, 1e-6)
    plain, whole = [], 0
    for repeat in range(100):
        key = root.child("r", n=repeat)
        coins = (key.child("coins").uniform(400) < 0.5).astype(float)
        scores = key.child("noise").normal(400).numpy() + coins
        guesses = Guesses.of(scores, coins, 40, 40)
        plain.append(steinke(guesses, 1e-6, 0.05))
        whole += rejects_guesses(guesses, curve(event), 0.05)  # exactly when the curve's bound exceeds the truth
    assert sum(one > truth for one in plain) <= 10 and whole <= 10
    assert f_dp(guesses, family, 1e-6, 0.05) > plain[-1] > 0.2 * truth


def test_guesses_are_the_extremes() -> None:
    scores, coins = np.array([3.0, -1.0, 0.5, 2.0, -2.0]), np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    assert Guesses.of(scores, coins, 2, 2) == Guesses(5, 4, 2)
