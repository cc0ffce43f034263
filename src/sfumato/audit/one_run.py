"""Lower bounds from one run with many canaries, each in it or not by a coin of its own.

The m canaries of one run are not m samples: they share its noise and its cohort. What holds is a statement about the number
of right guesses. An attack sees the run, names `guesses` canaries, and says of each whether its coin fell one way or the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from sfumato.account import accountant
from sfumato.account.event import Event
from sfumato.audit.bounds import Scores, largest
from sfumato.audit.family import Family


@dataclass(frozen=True)
class Guesses:
    """How many of `made` guesses about `canaries` fair and independent coins were right; the number made was fixed before."""

    canaries: int
    made: int
    right: int

    @staticmethod
    def of(scores: Scores, coins: Scores, highest: int, lowest: int) -> Guesses:
        """The canaries that score highest are guessed in, those that score lowest are guessed out."""
        order = np.argsort(scores, kind="stable")
        inside, outside = order[len(order) - highest :], order[:lowest]
        right = int((coins[inside] > 0).sum() + (coins[outside] <= 0).sum())
        return Guesses(len(scores), highest + lowest, right)


def steinke(guesses: Guesses, delta: float, alpha: float) -> float:
    """Steinke, Nasr and Jagielski 2023: the epsilon up to which so many right guesses have a chance of alpha at most.

    States: with probability 1 - alpha, an (epsilon, delta)-private mechanism is no member of what lies below. Given the output
    and the earlier coins, a coin is guessed with odds of e^epsilon at most, so that without delta the right guesses are
    dominated by Binomial(made, e^epsilon / (1 + e^epsilon)). A delta can turn i wrong guesses into right ones with a
    chance of 2 m delta / i at most (Theorem 5.2). That term is vacuous for m delta near 1: use a smaller delta.
    """
    return largest(lambda epsilon: chance_under_privacy(guesses, epsilon, delta) <= alpha)


def chance_under_privacy(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The largest chance of so many right guesses or more, of any (epsilon, delta)-private mechanism."""
    if guesses.right == 0:
        return 1.0
    odds = 1.0 / (1.0 + math.exp(-epsilon))
    at_least = binom.sf(guesses.right - np.arange(guesses.right + 1) - 1, guesses.made, odds)
    turned = (at_least[1:] - at_least[0]) / np.arange(1, guesses.right + 1)
    return min(1.0, float(at_least[0] + 2.0 * guesses.canaries * delta * max(0.0, float(turned.max()))))


def f_dp(guesses: Guesses, family: Family, delta: float, alpha: float) -> float:
    """Mahloujifar, Melis and Chaudhuri 2024: the epsilon of the least noisy member of a family that so many right guesses reject.

    It uses the whole trade-off curve of a member, and so loses nothing to delta.
    """
    return family.least_rejected(lambda event: rejects_guesses(guesses, curve(event), alpha), delta)


def curve(event: Event) -> Callable[[float], float]:
    """By the chance of something in one world, the least chance that it has in the other."""
    tradeoff = accountant().tradeoff
    return lambda chance: tradeoff(event, 1.0 - min(1.0, chance))


def rejects_guesses(guesses: Guesses, least: Callable[[float], float], alpha: float) -> bool:
    """Whether a mechanism with this trade-off curve has so many right guesses with a chance below alpha.

    Let p_t be the chance of t right guesses of k made about m coins, X_i the sum of t p_t / m over t >= i, and Y_i that of
    (k - t) p_t / m. X_i is the chance, for a random coin j, that j is guessed rightly and at least i guesses are right. If
    coin j is turned over and nothing else, the same outputs guess it wrongly, and at least i - 1 guesses are right. So
    X_i <= 1 - f(Y_{i-1}), as f is convex and the average over j and over all coins keeps the inequality: given X_i,
    Y_{i-1} is at least `least(X_i)`. Y_{i-1} - Y_i = (k - i + 1) p_{i-1} / m forces p_{i-1} up, and that forces X_{i-1} up. If the
    chance of at least v right guesses were alpha or more, then X_v >= alpha v / m; the steps down from there give the least
    X_0 + Y_0, which is k / m exactly. If that is less, there is no such mechanism.
    """
    m, k, v = guesses.canaries, guesses.made, guesses.right
    right, wrong = alpha * v / m, alpha * (k - v) / m
    for i in range(v, 0, -1):
        needed = least(right)
        if needed > wrong:
            right, wrong = right + (i - 1) / (k - i + 1) * (needed - wrong), needed
        else:
            break  # X stays as it is, and so does what it needs
        if right + wrong > k / m:
            return True
    return False
