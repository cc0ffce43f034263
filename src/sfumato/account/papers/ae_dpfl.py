"""AE-DPFL (appendix): what its Lemmas 12 and 13 say once corrected, Theorem 14 as printed, and data-dependent values.

Votes are counted in clients: `counts` is the sum of all ballots on one query, `stddev` that of the noise on each count. A margin
is the largest count minus the second. Lemma 12 plans from margins that somebody assumes. Everything that is
computed from the counts of a run is a function of private data, as secret as the votes are: a diagnostic, never a guarantee.
What a run costs is derived from its Round, and nothing here enters it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import log_ndtr, ndtr

from sfumato.account.event import Real
from sfumato.errors import BadValue

Renyi = Callable[[float], float]  # from an order to the divergence that holds whatever the data


def chance_of_plurality(margin: Real, stddev: Real, classes: int) -> float:
    """Lemma 12: the noisy label is the noiseless plurality with at least this chance, at an assumed margin.

    Unless some count moves by half the margin the order stays, and each of C counts does with a chance of at most
    exp(-margin^2 / (8 stddev^2)).

    >>> round(chance_of_plurality(150, 25, 10), 4)
    0.8889
    """
    return max(0.0, 1.0 - classes * math.exp(-0.125 * (margin / stddev) ** 2))


def margin_needed(stddev: Real, classes: int, failure: Real) -> float:
    """The margin at which Lemma 12 allows a wrong label with chance `failure` at most. The paper's threshold lacks stddev.

    >>> round(margin_needed(25, 10, 0.05))
    163
    """
    if not 0.0 < failure < 1.0:
        raise BadValue(f"failure={failure}: a chance between 0 and 1, e.g. 0.05.")
    return 2.0 * stddev * math.sqrt(2.0 * math.log(classes / failure))


def label_chances(counts: Sequence[Real], stddev: Real) -> np.ndarray:
    """How likely each label is the arg max of counts with Gaussian noise, by the trapezoidal rule over the winner's noise.

    Such sums of smooth functions that vanish at both ends converge faster than any power of the step.

    >>> label_chances([60, 40, 0, 0], 25).round(4)
    array([0.6896, 0.2712, 0.0196, 0.0196])
    """
    votes = np.asarray(counts, dtype=np.float64) / stddev
    places = np.linspace(-12.0, 12.0, 1201)
    below = log_ndtr(votes[:, None, None] + places - votes[None, :, None])  # winner, other, place
    below[np.arange(len(votes)), np.arange(len(votes))] = 0.0
    density = np.exp(below.sum(axis=1) - 0.5 * places**2) / math.sqrt(2.0 * math.pi)
    return np.asarray(density.sum(axis=1) * (places[1] - places[0]))


def chance_of_another(counts: Sequence[Real], stddev: Real, nearer: Real = 0.0) -> float:
    """At most so likely another label than the plurality comes out (Papernot et al. 2018, Proposition 7): a union bound.

    `nearer` votes are taken off every gap: what holds in each neighbouring world, if one unit moves a gap by that much.
    """
    votes = np.sort(np.asarray(counts, dtype=np.float64))[::-1]
    return min(1.0, float(ndtr((nearer - (votes[0] - votes[1:])) / (math.sqrt(2.0) * stddev)).sum()))


def lemma_13(order: Real, other: Real, other_beside: Real, independent: Renyi) -> float:
    """Lemma 13, corrected: the Renyi divergence between two worlds in which one and the same output is likely.

    `other` bounds the chance of any other output in the first world, `other_beside` in the second. On the likely output the
    integrand P^a Q^(1 - a) is at most (1 - other_beside)^(1 - a). On the rest it is, by Cauchy and Schwarz under P, at most
    sqrt(other) exp((a - 1) eps(2 a - 1)). The paper bounds the second chance by the first, and has the exponent wrong.
    """
    if other_beside >= 1.0:
        return independent(order)
    likely = -(order - 1.0) * math.log1p(-other_beside)
    rest = 0.5 * math.log(other) + (order - 1.0) * independent(2.0 * order - 1.0) if other > 0.0 else -math.inf
    return min(independent(order), float(np.logaddexp(likely, rest)) / (order - 1.0))


def theorem_14_as_published(order: Real, margin: Real, stddev: Real, classes: int, distance: Real = 1.0) -> float:
    """Theorem 14 as it is printed. FALSE: for the record, and no bound.

    Two classes, margin 14, stddev 1, order 8: it says .00245, and the divergence is .0449, the reverse one .350. The exponent
    (2 a - 1) stddev^2 / (2 s^2) should be (a - 1) (2 a - 1) s^2 / (2 stddev^2), and the neighbour's margin is smaller.

    >>> round(theorem_14_as_published(8, 14, 1, 2), 5)
    0.00245
    """
    square = (margin / stddev) ** 2
    exponent = (2.0 * order - 1.0) * (stddev / distance) ** 2 / 2.0 - square / 16.0 + math.log(classes)
    return classes * math.exp(-square / 8.0) + float(np.logaddexp(0.0, exponent)) / (order - 1.0)


def gaussian_renyi(stddev: Real, distance: Real) -> Renyi:
    """The divergence of the whole noisy histogram, whatever the votes: order distance^2 / (2 stddev^2)."""
    return lambda order: order * (distance / stddev) ** 2 / 2.0


def diagnostic_by_lemma_13(
    counts: Sequence[Real], stddev: Real, order: Real, distance: Real = 1.0, nearer: Real = 1.0
) -> float:
    """The divergence of one noisy label at THESE votes, the larger of both directions. Private, never a guarantee.

    One unit moves the histogram by `distance` and each gap by `nearer` at most: 1 and 1 for a client that comes or goes, the
    square root of 2 and 2 for one whose vote is swapped.
    """
    here, beside = (chance_of_another(counts, stddev, less) for less in (0.0, nearer))
    independent = gaussian_renyi(stddev, distance)
    return max(lemma_13(order, here, beside, independent), lemma_13(order, beside, here, independent))


def diagnostic_by_papernot(counts: Sequence[Real], stddev: Real, order: Real, distance: Real = math.sqrt(2.0)) -> float:
    """The same from these votes to any neighbouring ones (Papernot et al. 2018, Theorem 6). Private, never a guarantee.

    The two orders of the theorem are free; these are its Proposition 10's. Where they are not allowed, or do not help, the
    divergence that holds whatever the votes.
    """
    independent = gaussian_renyi(stddev, distance)
    other = chance_of_another(counts, stddev)
    if other == 0.0:  # too small for a float: nothing is known of it
        return independent(order)
    second = math.sqrt(2.0 * math.log(1.0 / other)) * stddev / distance
    first = second + 1.0
    if second <= 1.0 or order > first:
        return independent(order)
    log_other, near, far = math.log(other), independent(second), independent(first)
    allowed = (second - 1.0) * near - second * math.log(first / (first - 1.0) * second / (second - 1.0))
    if log_other > allowed:
        return independent(order)
    log_likely = math.log1p(-other) - math.log1p(-math.exp((log_other + near) * (second - 1.0) / second))
    log_rest = far - log_other / (first - 1.0)
    both = np.logaddexp(math.log1p(-other) + (order - 1.0) * log_likely, log_other + (order - 1.0) * log_rest)
    return min(independent(order), max(0.0, float(both) / (order - 1.0)))
