"""How well scores tell members from others: rates with exact binomial bands, the area under the curve, accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from sfumato.audit.attack import Chart, Curve
from sfumato.key import Key

RATES = (0.01, 0.001)
_CONFIDENCE = 0.95
_COINS = 200
_POINTS = 60  # of a drawn curve


@dataclass(frozen=True)
class Roc:
    """Rates of true and false positives at every threshold: a unit is called a member where its score is at least that."""

    false: np.ndarray
    true: np.ndarray
    others: int
    members: int

    @staticmethod
    def of(scores: Any, member: Any) -> Roc:
        """From one score and one truth for each unit; a score that is not a number counts as the lowest of all."""
        from sklearn.metrics import roc_curve

        held, values = np.asarray(member, dtype=bool), np.asarray(scores, dtype=np.float64)
        values = np.nan_to_num(values, nan=-1e300, posinf=1e300, neginf=-1e300)
        false, true, _ = roc_curve(held, values, drop_intermediate=False)
        return Roc(false, true, int((~held).sum()), int(held.sum()))

    @property
    def area(self) -> float:
        """The chance that a member has a higher score than another; equal scores count half."""
        return float(np.trapezoid(self.true, self.false))

    @property
    def accuracy(self) -> float:
        """The share of right answers about as many members as others, at the threshold that is best in hindsight, as the papers
        report it: scores that know nothing reach more than a half of it too.
        """
        return float(((self.true + 1.0 - self.false) / 2.0).max())

    def at(self, rate: float) -> float:
        """The largest rate of true positives where that of false ones is at most `rate`."""
        return float(self.true[self.false <= rate].max())

    def band(self, rate: float) -> tuple[float, float]:
        """A 95 % interval of the rate of true positives at that threshold, after Clopper and Pearson."""
        return clopper_pearson(round(self.at(rate) * self.members), self.members)

    @property
    def area_band(self) -> tuple[float, float]:
        """A 95 % interval of the area from its largest variance for so many units: A (1 - A) / min(members, others)
        (Birnbaum and Klose 1957). It assumes nothing of the scores, and is wide.
        """
        area = self.area
        width = stats.norm.isf((1.0 - _CONFIDENCE) / 2.0) * np.sqrt(
            area * (1.0 - area) / min(self.members, self.others)
        )
        return max(0.0, float(area - width)), min(1.0, float(area + width))

    def numbers(self) -> dict[str, float]:
        """What is printed of an attack."""
        rates = {f"tpr at fpr {rate:g}": self.at(rate) for rate in RATES}
        return {**rates, "auc": self.area, "accuracy": self.accuracy}

    def bands(self) -> dict[str, tuple[float, float]]:
        return {**{f"tpr at fpr {rate:g}": self.band(rate) for rate in RATES}, "auc": self.area_band}

    def curve(self, name: str) -> Curve:
        """The curve at rates of false positives that are even on a logarithmic axis, with its band."""
        least = 1.0 / self.others
        at = np.unique(np.geomspace(least, 1.0, _POINTS))
        bands = [self.band(rate) for rate in at]
        low, high = zip(*bands, strict=True)
        return Curve(name, tuple(at.tolist()), tuple(self.at(rate) for rate in at), tuple(low), tuple(high))


def clopper_pearson(hits: int, count: int, confidence: float = _CONFIDENCE) -> tuple[float, float]:
    """The exact two-sided interval of a share, from so many hits of so many.

    >>> [round(edge, 4) for edge in clopper_pearson(0, 10)]
    [0.0, 0.3085]
    """
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if hits == 0 else float(stats.beta.ppf(tail, hits, count - hits + 1))
    high = 1.0 if hits == count else float(stats.beta.isf(tail, hits + 1, count - hits))
    return low, high


def over(values: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The mean over several models, and its 95 % interval by Student's t."""
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    width = float(stats.t.isf((1.0 - _CONFIDENCE) / 2.0, len(values) - 1)) * error
    return mean, (max(0.0, mean - width), min(1.0, mean + width))


def by_coin(member: Any, key: Key) -> dict[str, float]:
    """What scores that know nothing exceed in one of 20 attempts, for just these numbers of members and others."""
    held = np.asarray(member, dtype=bool)
    draws = [Roc.of(key.child("coin", draw=draw).uniform(len(held)), held).numbers() for draw in range(_COINS)]
    return {name: float(np.quantile([draw[name] for draw in draws], _CONFIDENCE)) for name in draws[0]}


def chart(curves: dict[str, Roc]) -> Chart:
    """Curves on logarithmic axes, where what matters can be seen: a few members who are found with certainty."""
    drawn = [roc.curve(name) for name, roc in curves.items()]
    drawn.append(Curve("a coin", drawn[0].xs, drawn[0].xs))
    return Chart("Members found, by false alarms", "False positives", "True positives", tuple(drawn), log=True)
