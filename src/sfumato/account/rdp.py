"""Renyi accounting: one curve of divergences over orders, which adds up under composition.

A new event joins with

    @rdp_of.register
    def _(event: MyEvent, orders: Array) -> Array: ...
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, singledispatch

import numpy as np
from scipy.special import logsumexp

from sfumato.account.checks import check_delta, check_epsilon, check_rate
from sfumato.account.convert import epsilon_from_rdp, log_delta_from_rdp
from sfumato.account.divergences import (
    rdp_fixed_size,
    rdp_fixed_size_gaussian,
    rdp_gaussian,
    rdp_laplace,
    rdp_poisson,
    rdp_poisson_gaussian,
    rdp_poisson_laplace,
    rdp_poisson_replace_gaussian,
)
from sfumato.account.dominating import merged_gaussian, pair_of
from sfumato.account.event import (
    Composed,
    CuriousDraws,
    Event,
    FixedSizeSampled,
    LaplaceEvent,
    Mixture,
    PoissonSampled,
    Real,
    Relation,
    Repeated,
)
from sfumato.account.inside import check_one_relation, costs_nothing, is_non_private
from sfumato.account.noises import Array
from sfumato.account.pairs import Atoms, Pair
from sfumato.errors import CannotAccount

ORDERS = np.unique(
    np.concatenate([1 + 2.0 ** -np.arange(4, 25), np.arange(11, 110) / 10, np.arange(2, 257), 2.0 ** np.arange(9, 15)])
)


@dataclass(frozen=True)
class Rdp:
    """Prices an event by its Renyi divergences and the improved conversion (Canonne, Kamath, Steinke 2020).

    >>> from sfumato.account.event import GaussianEvent
    >>> round(Rdp().epsilon(Repeated(PoissonSampled(0.05, GaussianEvent(1.0)), 200), 1e-5), 2)
    5.37
    """

    name: str = "rdp"

    def check(self, event: Event) -> None:
        """Refuse an event, by name, whose divergence is not known."""
        self.curve(event)

    def curve(self, event: Event) -> Array:
        """The divergence at each of `ORDERS`."""
        check_one_relation(event)
        if costs_nothing(event):
            return np.zeros(len(ORDERS))
        if is_non_private(event):
            return np.full(len(ORDERS), np.inf)
        return _curve(event)

    def epsilon(self, event: Event, delta: Real) -> float:
        """The smallest epsilon over all orders."""
        check_delta(delta)
        if costs_nothing(event):
            return 0.0
        return max(0.0, float(np.min(epsilon_from_rdp(ORDERS, self.curve(event), delta))))

    def epsilons(self, event: Event, times: Sequence[int], delta: Real) -> list[float]:
        """The epsilon after each number of repetitions in `times`."""
        return [self.epsilon(Repeated(event, count), delta) for count in times]

    def delta(self, event: Event, epsilon: Real) -> float:
        """The smallest delta over all orders."""
        check_epsilon(epsilon)
        if costs_nothing(event):
            return 0.0
        return math.exp(min(0.0, float(np.min(log_delta_from_rdp(ORDERS, self.curve(event), epsilon)))))

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        """What delta(epsilon) at many epsilons says of every test with this false positive rate."""
        check_rate(false_positive_rate)
        if costs_nothing(event):
            return 1.0 - false_positive_rate
        curve, best = self.curve(event), 0.0
        for epsilon in (0.0, *np.geomspace(1e-6, 600.0, 400)):
            delta = math.exp(min(0.0, float(np.min(log_delta_from_rdp(ORDERS, curve, float(epsilon))))))
            left = 1 - delta - math.exp(epsilon) * false_positive_rate
            best = max(best, left, math.exp(-epsilon) * (1 - delta - false_positive_rate))
        return best


def _curve(event: Event) -> Array:
    """The one place that knows repetition, composition and participation."""
    match event:
        case Repeated(event=inner, times=times):
            return times * _curve(inner)
        case Composed(events=events):
            return np.asarray(np.sum([_curve(part) for part in events if not costs_nothing(part)], axis=0))
        case Mixture(probability=probability, event=inner):
            away = math.log1p(-probability) if probability < 1 else -math.inf
            together = np.logaddexp(away, math.log(probability) + (ORDERS - 1) * _curve(inner))
            return np.asarray(together / (ORDERS - 1))
    return _leaf(event)


@lru_cache(maxsize=256)
def _leaf(event: Event) -> Array:
    return rdp_of(event, ORDERS)


@singledispatch
def rdp_of(event: Event, orders: Array) -> Array:
    """The Renyi divergence of one event, the larger of both directions, at each order."""
    ratio = merged_gaussian(event)
    if ratio is not None:
        return rdp_gaussian(ratio, orders)
    raise CannotAccount(
        f"no Renyi divergence is known for {type(event).__name__}. Register one with sfumato.account.rdp.rdp_of."
    )


@singledispatch
def is_symmetric_noise(event: Event) -> bool:
    """Whether the event adds noise that is centrally symmetric, which makes the sum of a Poisson sample exact.

    The other direction is then no larger (Mironov, Talwar, Zhang 2019, Theorem 5, by the involution x -> v - x).
    """
    return merged_gaussian(event) is not None


@is_symmetric_noise.register
def _(event: LaplaceEvent) -> bool:
    return True


@rdp_of.register
def _(event: CuriousDraws, orders: Array) -> Array:
    return rdp_of_atoms(pair_of(event), orders)


def rdp_of_atoms(pair: Pair, orders: Array) -> Array:
    """The exact divergence of a loss that takes finitely many values, the larger of both directions."""
    assert isinstance(pair, Atoms), "finitely many losses"
    losses, log_p = np.array(pair.values), np.log(np.array(pair.chances))
    ways = [logsumexp(np.multiply.outer(way, losses) + log_p, axis=1) for way in (orders - 1, -orders)]
    return np.asarray(np.maximum(*ways) / (orders - 1))


@rdp_of.register
def _(event: LaplaceEvent, orders: Array) -> Array:
    return rdp_laplace(event.ratio, orders)


@rdp_of.register
def _(event: PoissonSampled, orders: Array) -> Array:
    ratio = merged_gaussian(event.event)
    if event.rate == 1.0:
        return rdp_of(event.event, orders) if ratio is None else rdp_gaussian(ratio, orders)
    if event.relation is Relation.ADD_REMOVE and ratio is not None:
        return rdp_poisson_gaussian(event.rate, ratio, orders)
    if event.relation is Relation.ADD_REMOVE and isinstance(event.event, LaplaceEvent):
        return rdp_poisson_laplace(event.rate, event.event.ratio, orders)
    if event.relation is Relation.REPLACE and ratio is not None:
        return rdp_poisson_replace_gaussian(event.rate, ratio, orders)
    if event.relation is Relation.ADD_REMOVE and not event.event.parts():
        return rdp_poisson(event.rate, partial(rdp_of, event.event), orders, is_symmetric_noise(event.event))
    raise CannotAccount(
        f"PoissonSampled of {type(event.event).__name__} has no Renyi bound under {event.relation}. Use 'pld'."
    )


@rdp_of.register
def _(event: FixedSizeSampled, orders: Array) -> Array:
    ratio = merged_gaussian(event.event)
    if event.rate == 1.0:
        return rdp_of(event.event, orders) if ratio is None else rdp_gaussian(ratio, orders)
    if ratio is None and event.relation is Relation.REPLACE and not event.event.parts():
        return np.minimum(rdp_fixed_size(event.rate, partial(rdp_of, event.event), orders), rdp_of(event.event, orders))
    if ratio is not None and event.relation is Relation.REPLACE:
        return np.minimum(rdp_fixed_size_gaussian(event.rate, ratio, orders), rdp_gaussian(ratio, orders))
    if ratio is not None and event.relation is Relation.ADD_REMOVE:
        return rdp_poisson_gaussian(event.rate, ratio, orders)
    raise CannotAccount(
        f"FixedSizeSampled of {type(event.event).__name__} has no Renyi bound under {event.relation}. Use 'pld'."
    )
