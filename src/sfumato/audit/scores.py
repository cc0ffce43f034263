"""Log-likelihood ratios over rounds: the best score that there is, for whoever knows everything but which world it is.

In one round the value is v = o + noise if the canary took no part, and o + c + noise if it did, where c is what it adds: p in
the present world and a in the absent one. Whether it took part has a chance q and is not seen. So the round's ratio is that
of (1-q) f(v-o) + q f(v-o-p) to (1-q) f(v-o) + q f(v-o-a), with f the density of the noise; rounds are independent given what was
released before, so that their logs add up. By Neyman and Pearson no test on these values is better than one on this score.
(A sum of inner products loses a quarter of epsilon under sampling.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.key import Key
from sfumato.pieces.as_published import AsPublished, PerCoordinateStaircase
from sfumato.pieces.law import Laplace
from sfumato.pieces.staircase import Staircase, levels, moments

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Density:
    """What is known of the noise: its law and its standard deviation on each coordinate."""

    law: Any
    stddev: float

    def log_ratio(self, value: Values, move: Values) -> Values:
        """log f(value - move) - log f(value), over the last axis; Gaussian for laws that are not known here."""
        law = self.law.law if isinstance(self.law, AsPublished) else self.law
        size = value.shape[-1]
        if isinstance(law, Laplace):
            return np.asarray((np.abs(value) - np.abs(value - move)).sum(-1) * math.sqrt(2.0) / self.stddev)
        if isinstance(law, Staircase):
            share, spread = law.share(size), math.sqrt(moments(size, law.loss, law.share(size))[1] / size)
            before, after = (np.abs(at).sum(-1) * spread / self.stddev for at in (value, value - move))
            return np.asarray((np.floor(before + 1.0 - share) - np.floor(after + 1.0 - share)) * law.loss)
        if isinstance(law, PerCoordinateStaircase):
            spread = math.sqrt(moments(1, law.loss, law.share)[1])
            before, after = (np.abs(at) * spread / self.stddev for at in (value, value - move))
            falls = np.floor(before + 1.0 - law.share) - np.floor(after + 1.0 - law.share)
            return np.asarray(falls.sum(-1) * law.loss)
        return np.asarray(((value * move).sum(-1) - (move * move).sum(-1) / 2.0) / self.stddev**2)


@dataclass(frozen=True)
class Look:
    """What one release shows of a canary: `present` and `absent` are what it adds to `others` in either world, if it is drawn."""

    density: Density
    present: Values
    absent: Values
    others: Values
    chance: float

    def ratio(self, value: Values) -> Values:
        """The log-likelihood ratio of values [..., coordinates]."""
        at = value - self.others
        present, absent = (
            _drawn(self.density.log_ratio(at, move), self.chance) for move in (self.present, self.absent)
        )
        return np.asarray(present - absent)

    def imagined(self, runs: int, is_present: bool, key: Key) -> Values:
        """Ratios of made-up releases, as they would be if everything is as stated: no run is looked at."""
        drawn = key.child("drawn").uniform(runs) < self.chance
        adds = np.where(drawn[:, None], self.present if is_present else self.absent, 0.0)
        noise = self.density.law.sample if hasattr(self.density.law, "sample") else None
        shape = (len(self.present),)
        if noise is None or _is_exact(self.density.law):
            draws = key.child("noise").normal(runs, *shape, stddev=self.density.stddev).numpy()
        elif isinstance(self.density.law, Staircase):
            draws = _staircases(self.density.law, runs, len(self.present), self.density.stddev, key.child("noise"))
        else:
            draws = noise((runs, *shape), self.density.stddev, key.child("noise")).numpy()
        return self.ratio(self.others + adds + draws)


def _staircases(law: Staircase, runs: int, size: int, stddev: float, key: Key) -> Values:
    """Many rows of staircase noise at once, each drawn jointly: what `Staircase.sample` draws one by one."""
    share = law.share(size)
    first, below = levels(size, law.loss, share)
    level = first + np.searchsorted(below, key.child("level").uniform(runs) * below[-1])
    radius = (level + share) * key.child("radius").uniform(runs) ** (1.0 / size)
    spread = math.sqrt(moments(size, law.loss, share)[1] / size)
    direction = key.child("direction").laplace(runs, size).numpy()
    return np.asarray(direction * (radius * stddev / spread / np.abs(direction).sum(1))[:, None])


def _is_exact(law: Any) -> bool:
    return type(law).__module__ == "sfumato.pieces.exact"


def _drawn(ratio: Values, chance: float) -> Values:
    """log(1 - chance + chance e^ratio)."""
    if chance == 1.0:
        return ratio
    return np.asarray(np.logaddexp(math.log1p(-chance), math.log(chance) + ratio))
