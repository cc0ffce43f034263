"""What the best of a random number of runs costs, from the privacy profile of one run.

Two neighbours give a run the laws P and Q. Let s and t be what P and Q give to the outputs that beat y (lots included, so s is
uniform under P), and w(s) = E[K] (gamma / (gamma + (1 - gamma) s))^(eta + 1), which falls. The released output has the density
p(y) w(s) against q(y) w(t), since the others of K runs must all be beaten. With x = e^epsilon / (p/q)(y) its delta is

  E_P (w(s) - x w(t))+  <=  E_P M(x),   M(x) = max over s of (w(s) - x w(T(s)))+,   T(s) the most that Q gives where P gives s,

because w falls. T(s) = inf over a of delta(a) + e^a s, from the profile of (Q, P). M is convex and falls, so E_P M is a mixture of
profiles of (P, Q): a profile that is larger everywhere, such as that of a dominating pair, gives no less, and so does a larger
function in place of M. Nothing is lost but that every y is given the s that is worst for it. It is never above
E[K] delta(epsilon - (eta + 1) a) for any a with delta(a) <= gamma (e^a - 1) / (1 - gamma), since then w(s) / w(T(s)) <=
e^((eta + 1) a); and that is never above the Renyi bound of Papernot and Steinke.

Here delta is the larger of both directions at every epsilon, so the result holds in both. It is computed at dots, and dots are
connected: a profile is convex in e^epsilon and 1 at 0, so the lower convex hull of any bounds on it bounds it too, and is
the profile of a pair that takes the dots as its losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sfumato.account.inner_profile import LARGEST, inner_profile
from sfumato.account.noises import ROUNDING, Array
from sfumato.account.pairs import Cells, cells
from sfumato.account.selected import Selected
from sfumato.errors import CannotAccount

_SHARES, _FEW_SHARES = 1500, 300  # intervals of s: where it counts, and below that


@dataclass(frozen=True, eq=False)
class Dots:
    """A pair whose loss takes these values, or is infinite; symmetric, because the profile that it comes from is."""

    values: Array
    chances: Array
    infinite: float
    symmetric: bool = True

    def losses(self, spacing: float) -> Array:
        margin = 1e-6 * float(np.abs(self.values).max())
        return np.unique(np.concatenate([self.values - margin, [0.0], self.values + margin]))

    def cells(self, cuts: Array) -> Cells:
        where = np.searchsorted(cuts, self.values)
        p, q = (np.bincount(where, part, len(cuts) + 1) for part in (self.chances, self.chances * np.exp(-self.values)))
        p[-1] += self.infinite
        with np.errstate(divide="ignore"):
            return cells(np.log(p), np.log(q), np.full(len(p), (len(self.values) + 8) * ROUNDING))


@lru_cache(maxsize=64)
def selection_pair(event: Selected) -> Dots:
    """The pair that dominates a selection, in both directions."""
    step, profile = inner_profile(event.event)
    return connected_dots(step, selected_profile(event, step, profile))


def selected_profile(event: Selected, step: float, profile: Array) -> Array:
    """delta of the selection at 0, step, 2 step, ... from that of one run at the same, both from above.

    As far beyond the last dot of the run as the largest loss of all can grow.
    """
    shift = (1 + event.eta) * _most_apart(event.gamma, step, profile)
    if shift > LARGEST:
        raise CannotAccount(f"{event.words()}: this hides too little for a price by its profile. Use more noise.")
    one, count = connected_dots(step, profile), len(profile) - 1
    masses = np.zeros(2 * count + 1)
    masses[np.rint(one.values / step).astype(int) + count] = one.chances
    longest = 2 * count + math.ceil(shift / step) + 1
    ratio = np.exp(np.minimum(step * np.arange(-count, longest + 1), 690.0))  # e^epsilon over p/q
    highest = _highest(*_lines(event, *both_sides(step, profile)), ratio)[0]
    simple = event.mean * (1 + 8 * ROUNDING - ratio * math.exp(-shift))
    most = np.maximum(np.minimum(highest, simple), 0.0)
    found = np.convolve(masses, most, "valid") + one.infinite * event.mean
    return np.minimum(np.minimum.accumulate(found * (1 + 1e-10)), 1.0)


def _most_apart(gamma: float, step: float, profile: Array) -> float:
    """The least a with delta(a) <= gamma (e^a - 1) / (1 - gamma), from above: w(s) / w(T(s)) <= e^((eta + 1) a) for every s.

    Between two dots delta is below its chord, as a function of e^a, in which the other side is a line.
    """
    grown = np.expm1(step * np.arange(len(profile)))
    room = gamma / (1 - gamma) * grown - profile
    if room[-1] < 0:
        return math.inf
    at = int(np.argmax(room >= 0))
    if at == 0:
        return 0.0
    part = room[at - 1] / (room[at - 1] - room[at])
    return math.log1p(grown[at - 1] + part * (grown[at] - grown[at - 1])) * (1 + 1e-10)


def both_sides(step: float, profile: Array) -> tuple[Array, Array]:
    """The epsilons of both signs, and delta there: delta(-a) = 1 - e^-a (1 - delta'(a)), where delta' is the other direction."""
    epsilons = step * np.arange(len(profile))
    mirrored = np.minimum(1.0 - np.exp(-epsilons) * (1.0 - profile) + 4 * ROUNDING, 1.0)
    return np.concatenate([-epsilons[:0:-1], epsilons]), np.concatenate([mirrored[:0:-1], profile])


def connected_dots(step: float, profile: Array) -> Dots:
    """The pair with the largest profile that is at most the given one at 0, step, 2 step, ..., and at their mirror images.

    Along the hull of (e^epsilon, delta) the slope rises by Q's mass at each corner, and P's is e^epsilon as much.
    """
    epsilons, deltas = both_sides(step, profile)
    corners = _hull(np.append(0.0, np.exp(epsilons)), np.append(1.0, deltas))[1:] - 1
    losses, y = epsilons[corners], np.append(1.0, deltas[corners])
    weight = np.exp(losses)
    width = np.append(weight[0], weight[:-1] * np.expm1(np.diff(losses)))
    slopes = np.append(np.diff(y) / width, 0.0)
    doubt = 8 * ROUNDING * weight * (np.abs(slopes[:-1]) + np.abs(slopes[1:]))
    return Dots(losses, np.maximum(weight * np.diff(slopes), 0.0) + doubt, float(y[-1]))


def _lines(event: Selected, epsilons: Array, deltas: Array) -> tuple[Array, Array]:
    """Lines a - x b, the highest of which is at no x below w(s) - x w(T(s)), for any share s.

    On a short interval of s: w is convex, so below its chord; T is concave and w falls, so w(T(s)) is convex and above its tangent
    in the middle. Their difference is a line in s, and largest at an end. Below the first interval w(0) and the largest T do.
    """
    least = 1e-4 * event.gamma
    few = np.geomspace(min(1e-30, 1e-2 * least), least, _FEW_SHARES)
    shares = np.append(few[:-1], np.geomspace(least, 1.0, _SHARES))
    low, high = shares[:-1], shares[1:]
    middle = (low + high) / 2
    worst, rises = _highest(np.append(-1.0, -deltas), np.append(0.0, np.exp(epsilons)), np.append(low[0], middle))
    (first, there), rise = np.split(-worst, [1]), rises[1:]
    weight = _weight(event, there)
    fall = (1 + event.eta) * (1 - event.gamma) / (event.gamma + (1 - event.gamma) * there) * rise * (high - middle)
    intercepts = np.concatenate([[event.mean], _weight(event, low), _weight(event, high)])
    slopes = np.concatenate([_weight(event, first), weight * (1 + fall), weight * (1 - fall)])
    return intercepts * (1 + 1e-12), slopes - 1e-12 * np.abs(slopes)


def _weight(event: Selected, share: Array) -> Array:
    """w(share)."""
    return np.asarray(event.mean * (event.gamma / (event.gamma + (1 - event.gamma) * share)) ** (1 + event.eta))


def _highest(intercepts: Array, slopes: Array, x: Array) -> tuple[Array, Array]:
    """The largest of a - x b over some lines at each x >= 0, and its b."""
    order = np.lexsort((-intercepts, slopes))
    order = order[np.append(True, np.diff(slopes[order]) > 0)]
    a, b = intercepts[order], slopes[order]
    corners = _hull(b, -a)
    a, b = a[corners], b[corners]
    which = np.searchsorted(-np.diff(a) / np.diff(b), -x)  # where two neighbours are equal falls from line to line
    return a[which] - x * b[which], b[which]


def _hull(x: Array, y: Array) -> np.ndarray:
    """Which points are corners of the lower convex hull; x rises."""
    across, up = x.tolist(), y.tolist()
    kept: list[int] = []
    for new, (a, b) in enumerate(zip(across, up, strict=True)):
        while len(kept) > 1:
            first, last = kept[-2], kept[-1]
            if (up[last] - up[first]) * (a - across[last]) < (b - up[last]) * (across[last] - across[first]):
                break
            kept.pop()
        kept.append(new)
    return np.array(kept)
