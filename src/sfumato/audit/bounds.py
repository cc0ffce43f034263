"""From scores to a lower bound on epsilon: what each bound states, what it assumes, and why it is true.

An attack gives every run a score. A threshold turns scores into a test between two neighbouring worlds, whose errors are
the false positive rate x (the absent world scores above it) and the false negative rate y (the present one does not). If the
mechanism is (epsilon, delta)-private, then y >= 1 - delta - e^epsilon x and x >= 1 - delta - e^epsilon y for every test.
Runs are independent and the threshold is chosen before their scores are seen, so errors are binomial counts. A bound at
confidence 1 - alpha is above the truth of a sound mechanism with probability alpha at most, whatever the scores are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, chdtri, ndtr
from scipy.stats import beta

from sfumato.account.gdp import gdp_epsilon
from sfumato.errors import BadValue

Scores: TypeAlias = NDArray[np.float64]
CERTAIN = 1e-6  # the probability that a sound round is called broken; it is split between
BY_TESTS, BY_SCORES = CERTAIN / 2, CERTAIN / 2  # the direct tests, and the scores of canaries
_PARTS = 1001  # of a law, where an integral over it is a sum of that many equal parts
_HALVINGS = 40
_LARGEST = 100.0  # no epsilon beyond this is looked for


def rounded_down(bound: float) -> str:
    """A lower bound with three digits after the point that is still one.

    >>> rounded_down(1.2399)
    '1.239'
    """
    return f"{math.floor(1000 * bound) / 1000:.3f}" if math.isfinite(bound) else "infinite"


@dataclass(frozen=True)
class Errors:
    """How often a test erred in independent runs of both worlds."""

    false_positives: int
    absent: int
    false_negatives: int
    present: int

    @staticmethod
    def of(absent: Scores, present: Scores, threshold: float) -> Errors:
        """The errors of the test that says present above a threshold, which was chosen without looking at these scores; and of a
        score that is no number.
        """
        if not (len(absent) and len(present)):
            raise BadValue("an audit needs scores of both worlds. Run each at least once.")
        return Errors(int((~(absent <= threshold)).sum()), len(absent), int((present <= threshold).sum()), len(present))

    def upper(self, alpha: float) -> tuple[float, float]:
        """Upper limits of both error rates, which hold together with probability 1 - alpha (Bonferroni)."""
        return (
            upper_limit(self.false_positives, self.absent, alpha / 2),
            upper_limit(self.false_negatives, self.present, alpha / 2),
        )


def upper_limit(count: int, trials: int, alpha: float) -> float:
    """Clopper and Pearson 1934: a rate above this gives so few successes with a chance of alpha at most.

    >>> round(upper_limit(0, 100, 0.05), 4)
    0.0295
    """
    return 1.0 if count >= trials else float(betaincinv(count + 1, trials - count, 1.0 - alpha))


def epsilon_of_rates(false_positive: float, false_negative: float, delta: float) -> float:
    """The smallest epsilon at this delta that a test with these errors allows.

    >>> round(epsilon_of_rates(0.1, 0.2, 0.0), 4)
    2.0794
    """
    found = 0.0
    for one, other in ((false_positive, false_negative), (false_negative, false_positive)):
        right = 1.0 - delta - other
        if right > 0.0:
            found = max(found, math.inf if one == 0.0 else math.log(right / one))
    return found


def clopper_pearson(errors: Errors, delta: float, alpha: float) -> float:
    """The epsilon of the upper limits of both error rates.

    Assumes nothing but independent runs and a threshold from elsewhere. It cannot show more than the log of the number of
    runs, however little the mechanism hides.
    """
    return epsilon_of_rates(*errors.upper(alpha), delta)


def bayesian(errors: Errors, delta: float, alpha: float) -> float:
    """Zanella-Beguelin et al. 2023: error rates get independent Jeffreys priors Beta(1/2, 1/2); epsilon is above this with
    posterior probability 1 - alpha.

    It is tighter than two separate limits because it cuts the joint law once. A statement about belief under that prior, whose
    coverage is close to its credibility and is not guaranteed: it never decides a verdict. The probability that the
    rates are those of an (epsilon, delta)-private mechanism grows with epsilon; the bound is where it reaches alpha. Only the
    test itself counts, not its complement: with that, scores that say nothing would be believed to say something.
    """
    x_law = (errors.false_positives + 0.5, errors.absent - errors.false_positives + 0.5)
    y_law = (errors.false_negatives + 0.5, errors.present - errors.false_negatives + 0.5)
    x = beta.ppf((np.arange(_PARTS) + 0.5) / _PARTS, *x_law)  # equally likely rates

    def inside(epsilon: float) -> float:
        low = np.maximum(1.0 - delta - math.exp(epsilon) * x, math.exp(-epsilon) * (1.0 - delta - x))
        return float(np.mean(1.0 - betainc(*y_law, np.clip(low, 0.0, 1.0))))

    return largest(lambda epsilon: inside(epsilon) <= alpha)


def gaussian_fit(absent: Scores, present: Scores, delta: float, alpha: float) -> float:
    """The epsilon of a lower limit of mu, where both worlds' scores are normal with one variance and means mu deviations apart.

    That is exactly so for log-likelihood ratios of unsampled Gaussian events, and for nothing else: under Poisson sampling the
    fit exceeds the truth of a sound mechanism, so the caller says which event it is. The pooled t statistic is then noncentral
    t with noncentrality mu / sqrt(1/n + 1/m), P(T <= t) = E Phi(t sqrt(V / k) - noncentrality) with V chi-squared of k degrees,
    and the limit is the mu at which a t as large as the one seen has a chance of alpha.
    """
    n, m = len(absent), len(present)
    freedom = n + m - 2
    if min(n, m) < 2:
        raise BadValue(f"a fit needs at least 2 scores of each world, not {n} and {m}. Ask for more runs.")
    pooled = math.sqrt((np.var(absent) * n + np.var(present) * m) / freedom)
    if pooled == 0.0:
        return 0.0
    scale = math.sqrt(1.0 / n + 1.0 / m)
    seen = float(present.mean() - absent.mean()) / pooled / scale
    # equally likely chi-squared values, of which the left end of each part is taken: a smaller chance to lie below `seen`
    roots = seen * np.sqrt(chdtri(freedom, 1.0 - np.arange(_PARTS) / _PARTS) / freedom)
    mu = largest(lambda mu: float(np.mean(ndtr(roots - mu / scale))) >= 1.0 - alpha)
    return gdp_epsilon(mu, delta) if mu > 0.0 else 0.0


def epsilon_lower_bound(absent: Scores, present: Scores, delta: float, confidence: float) -> float:
    """The largest epsilon that any of a hundred thresholds proves, at that confidence over all of them together.

    Every fourth score chooses the thresholds and is not looked at again; the others are counted.
    """
    chooses = np.arange(max(len(absent), len(present))) % 4 == 0
    pilot = np.concatenate([scores[chooses[: len(scores)]] for scores in (absent, present)])
    absent, present = (scores[~chooses[: len(scores)]] for scores in (absent, present))
    thresholds = np.unique(np.quantile(pilot, np.linspace(0.005, 0.995, 100)))
    alpha = (1.0 - confidence) / len(thresholds)
    return max(clopper_pearson(Errors.of(absent, present, float(threshold)), delta, alpha) for threshold in thresholds)


def largest(holds: Callable[[float], bool]) -> float:
    """The largest number for which something holds that holds for all smaller ones; 0 if it holds for none."""
    low, high = 0.0, _LARGEST
    if not holds(low):
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
