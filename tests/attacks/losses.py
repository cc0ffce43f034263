"""Lower bounds on delta from what a test can see: everything here only loses against the best test, never gains.

What is observed in a world is a finite mixture of Gaussians (one part for each cohort), each with a label that the observer
sees besides. Projecting on a line and cutting the line into cells are functions of the observation, so by data processing the
cells' hockey-stick divergence is at most that of the observation itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc, ndtr

Array = NDArray[np.float64]
_STEP, _FAR, _MOST = 0.06, 8.0, 1500  # of a standard deviation: the cells, how far out they go; and how many at most
_GRID = 2**14
_FAR_LOSS = 60.0


@dataclass(frozen=True)
class Part:
    """One way in which an observation comes about: its chance, a label that is seen, and N(mean, variance) on each coordinate.

    `idle` coordinates besides those of `mean` carry nothing but the noise.
    """

    label: Hashable
    chance: float
    mean: tuple[float, ...]
    variance: float
    idle: int = 0


@dataclass(frozen=True)
class Pair:
    """The chances of the same outcomes in two worlds."""

    one: Array
    other: Array

    @property
    def reversed(self) -> Pair:
        """The worlds the other way round."""
        return Pair(self.other, self.one)


def observed(one: Sequence[Part], other: Sequence[Part]) -> Pair:
    """Two worlds as discrete outcomes: the label, the cell on the line between the means, the bin of the noise's energy."""
    outcomes = []
    for label in dict.fromkeys(part.label for part in (*one, *other)):
        here = [_merged(part for part in world if part.label == label) for world in (one, other)]
        for variance in {v for world in here for (_, v, _) in world if v == 0.0}:
            atoms = [{key[0]: chance for key, chance in world.items() if key[1] == variance} for world in here]
            for place in {place for world in atoms for place in world}:
                outcomes.append(np.array([[world.get(place, 0.0)] for world in atoms]))
        spread = [{key: chance for key, chance in world.items() if key[1] > 0.0} for world in here]
        if any(spread):
            outcomes.append(_cells(*spread))
    both = np.concatenate(outcomes, axis=1)
    return Pair(both[0], both[1])


_Merged = dict[tuple[tuple[float, ...], float, int], float]


def _merged(parts: Iterable[Part]) -> _Merged:
    found: _Merged = {}
    for part in parts:
        key = (tuple(round(value, 12) for value in part.mean), part.variance, part.idle)
        found[key] = found.get(key, 0.0) + part.chance
    return found


def _cells(one: _Merged, other: _Merged) -> Array:
    """Chances [2, energy bins x cells] of two mixtures of Gaussians."""
    keys = list({**one, **other})
    means = np.array([mean for mean, _, _ in keys])
    gaps = np.linalg.norm(means[:, None] - means[None], axis=2)
    first, second = np.unravel_index(int(gaps.argmax()), gaps.shape)
    line = means[first] - means[second]
    line = line / np.linalg.norm(line) if gaps.max() > 0 else np.eye(means.shape[1])[0]
    centres, deviations = means @ line, np.sqrt([variance for _, variance, _ in keys])
    low, high = (centres - _FAR * deviations).min(), (centres + _FAR * deviations).max()
    count = min(_MOST, int(np.ceil((high - low) / (_STEP * deviations.min()))) + 1)
    edges = np.concatenate([[-np.inf], np.linspace(low, high, count), [np.inf]])
    masses = np.array([gaussian_masses(edges, c, d) for c, d in zip(centres, deviations, strict=True)])
    energies = _energies([(variance, idle) for _, variance, idle in keys])
    joint = (energies[:, :, None] * masses[:, None, :]).reshape(len(keys), -1)
    weights = np.array([[world.get(key, 0.0) for key in keys] for world in (one, other)])
    return weights @ joint


def gaussian_masses(edges: Array, centre: float, deviation: float) -> Array:
    """Masses between edges: differences of the smaller tails, so that far cells keep their digits."""
    places = (edges - centre) / deviation
    below, above = ndtr(places), ndtr(-places)
    return np.asarray(np.where(places[1:] < 0, below[1:] - below[:-1], above[:-1] - above[1:]))


def _energies(keys: Sequence[tuple[float, int]]) -> Array:
    """Chances of the bins between the expected energies of the coordinates that carry noise only: chi-square, exactly."""
    idle = min(count for _, count in keys)
    levels = sorted({variance for variance, _ in keys})
    if idle == 0 or len(levels) == 1:
        return np.ones((len(keys), 1))
    cuts = np.sqrt(np.array(levels[:-1]) * np.array(levels[1:]))
    result = []
    for variance, _ in keys:
        places = np.concatenate([[0.0], idle * cuts / variance, [np.inf]])
        below, above = chdtr(idle, places), chdtrc(idle, places)
        result.append(np.where(places[1:] < idle, below[1:] - below[:-1], above[:-1] - above[1:]))
    return np.array(result)


class Composed:
    """What all rounds together show, if round i shows the i-th pair and rounds are independent.

    Losses are rounded down to a grid, those too far below it are dropped: delta can only fall.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._single = pairs[0] if len(pairs) == 1 else None
        if self._single is None:
            self._losses, self._chances, self._endless = _convolved(pairs)

    def delta(self, epsilon: float) -> float:
        """A lower bound on delta at this epsilon."""
        if self._single is not None:
            return float(np.maximum(self._single.one - np.exp(epsilon) * self._single.other, 0.0).sum())
        shown = -np.expm1(np.minimum(epsilon - self._losses, 0.0))
        return float(self._endless + (self._chances * shown).sum())

    def epsilon(self, delta: float) -> float:
        """The largest epsilon at which more than delta is attained: a lower bound on the true one."""
        low, high = 0.0, 200.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return low


def _convolved(pairs: Sequence[Pair]) -> tuple[Array, Array, float]:
    times = Counter(map(id, pairs))
    kept, sure = [], 1.0
    for pair in {id(pair): pair for pair in pairs}.values():
        both = (pair.one > 0) & (pair.other > 0)
        losses, chances = np.log(pair.one[both] / pair.other[both]), pair.one[both]
        near = losses > -_FAR_LOSS
        kept.append((np.minimum(losses[near], _FAR_LOSS), chances[near], times[id(pair)]))
        sure *= (1.0 - float(pair.one[pair.other == 0].sum())) ** times[id(pair)]
    reach = sum(count * max(float(np.abs(losses).max(initial=0.0)), 1e-6) for losses, _, count in kept)
    step = 2.1 * reach / (_GRID - 2 * len(pairs) - 2)
    spectrum = np.ones(_GRID // 2 + 1, dtype=complex)
    for losses, chances, count in kept:
        places = np.floor(losses / step - 1e-9).astype(np.int64) % _GRID
        spectrum *= np.fft.rfft(np.bincount(places, weights=chances, minlength=_GRID)) ** count
    numbers = np.arange(_GRID)
    return np.where(numbers < _GRID // 2, numbers, numbers - _GRID) * step, np.fft.irfft(spectrum, _GRID), 1.0 - sure
