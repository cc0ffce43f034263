"""Renyi accounting: one curve of divergences over orders, which adds up under composition.

A new event joins with

    @rdp_of.register
    def _(event: MyEvent, orders: Array) -> Array: ...
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial, singledispatch

import numpy as np

from sfumato.account.checks import check_delta, check_epsilon, check_rate
from sfumato.account.convert import epsilon_from_rdp, log_delta_from_rdp, tradeoff_from_profile
from sfumato.account.discrete import rdp_discrete_gaussian
from sfumato.account.divergences import (
    rdp_fixed_size,
    rdp_fixed_size_gaussian,
    rdp_gaussian,
    rdp_laplace,
    rdp_laplace_ball,
    rdp_poisson,
    rdp_poisson_gaussian,
    rdp_poisson_laplace,
    rdp_poisson_replace_gaussian,
    rdp_staircase_ball,
)
from sfumato.account.dominating import is_proven, merged_gaussian, pair_of
from sfumato.account.event import (
    Composed,
    CuriousDraws,
    DiscreteGaussianEvent,
    Event,
    FixedSizeSampled,
    LaplaceBallEvent,
    LaplaceEvent,
    Mixture,
    PoissonSampled,
    PureEvent,
    Real,
    Relation,
    Repeated,
    StaircaseBallEvent,
    StaircaseEvent,
    compose,
)
from sfumato.account.inside import costs_nothing, known_cost
from sfumato.account.loss_grid import grid
from sfumato.account.noises import Array, log_sampled, log_sum
from sfumato.account.pairs import Atoms
from sfumato.account.selected import Selected
from sfumato.account.shuffled import ShuffledEvent
from sfumato.errors import CannotAccount

ORDERS = np.unique(
    np.concatenate([1 + 2.0 ** -np.arange(4, 25), np.arange(11, 110) / 10, np.arange(2, 257), 2.0 ** np.arange(9, 15)])
)
_SHUFFLED_SPACING = 5e-4


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
        if known_cost(event) is None:
            curve(event)

    def epsilon(self, event: Event, delta: Real) -> float:
        check_delta(delta)
        known = known_cost(event)
        if known is not None:
            return known
        return max(0.0, float(np.min(epsilon_from_rdp(ORDERS, curve(event), delta))))

    def delta(self, event: Event, epsilon: Real) -> float:
        check_epsilon(epsilon)
        known = known_cost(event)
        if known is not None:
            return float(known > 0)
        return math.exp(min(0.0, float(np.min(log_delta_from_rdp(ORDERS, curve(event), epsilon)))))

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        check_rate(false_positive_rate)
        known = known_cost(event)
        if known is not None:
            return 0.0 if known else 1.0 - false_positive_rate
        known_curve, epsilons = curve(event), np.append(0.0, np.geomspace(1e-6, 600.0, 400))
        log_deltas = [np.min(log_delta_from_rdp(ORDERS, known_curve, float(epsilon))) for epsilon in epsilons]
        return tradeoff_from_profile(epsilons, np.exp(np.minimum(log_deltas, 0.0)), false_positive_rate)


def curve(event: Event) -> Array:
    """The Renyi divergences at `ORDERS`: the one place that knows repetition, composition and participation."""
    match event:
        case Repeated(event=inner, times=times):
            return times * curve(inner)
        case Composed(events=events):
            return np.asarray(np.sum([curve(part) for part in events if not costs_nothing(part)], axis=0))
        case Mixture(probability=probability, event=inner):
            away = math.log1p(-probability) if probability < 1 else -math.inf
            together = np.logaddexp(away, math.log(probability) + (ORDERS - 1) * curve(inner))
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


@is_symmetric_noise.register(LaplaceEvent)
@is_symmetric_noise.register(LaplaceBallEvent)
@is_symmetric_noise.register(StaircaseBallEvent)
@is_symmetric_noise.register(DiscreteGaussianEvent)
def _(event: Event) -> bool:
    return True


@rdp_of.register(CuriousDraws)
@rdp_of.register(PureEvent)
@rdp_of.register(StaircaseEvent)
def _(event: Event, orders: Array) -> Array:
    return _of_atoms(event, 1.0, orders)


def _of_atoms(event: Event, rate: Real, orders: Array) -> Array:
    """A loss that takes finitely many values, in a Poisson sample of this rate: exact, the larger of both directions."""
    pair = pair_of(event)
    assert isinstance(pair, Atoms), "finitely many losses"
    with np.errstate(divide="ignore"):
        losses, log_p = np.array(pair.values), np.log(np.array(pair.chances))
    sampled = log_sampled(losses, rate) if rate < 1.0 else losses
    ways = [log_sum(np.multiply.outer(way, sampled) - losses + log_p) for way in (orders, 1 - orders)]
    return np.asarray(np.maximum(*ways) / (orders - 1))


@rdp_of.register
def _(event: ShuffledEvent, orders: Array) -> Array:
    """From above, to about nine digits: the dots of a fine grid are connected, which keeps the chances of both worlds."""
    curve = grid(pair_of(event), 0.0, _SHUFFLED_SPACING).cumulants(orders - 1) / (orders - 1)
    return np.minimum(curve, event.epsilon)  # near order 1 rounding is divided by next to nothing


@rdp_of.register
def _(event: Selected, orders: Array) -> Array:
    """Papernot and Steinke 2022, Theorem 2.

    The density of the released output is that of a run times w(s), at most E[K] (`selection`). With a coin of chance gamma beside
    a run, gamma + (1 - gamma) s and gamma + (1 - gamma) t are the chances of one event in both worlds, at least gamma. Of any
    event the second is at most (e^rho times the first)^(1 - 1/order), so w(s) / w(t), a power of their ratio, is at most
    (e^((1 - 1/order) rho) gamma^(-1/order))^(eta + 1), for every order.
    """
    inner = curve(compose(event.event))
    worth = (1 + event.eta) * float(np.min((1 - 1 / ORDERS) * inner - math.log(event.gamma) / ORDERS))
    found = inner + worth + math.log(event.mean) / (ORDERS - 1)
    found = np.minimum.accumulate(found[::-1])[::-1]  # it rises with the order
    above = np.searchsorted(ORDERS, orders)
    return np.append(found, np.inf)[above]


@rdp_of.register
def _(event: LaplaceEvent, orders: Array) -> Array:
    return rdp_laplace(event.ratio, orders)


@rdp_of.register
def _(event: LaplaceBallEvent, orders: Array) -> Array:
    return rdp_laplace_ball(event.ratio, event.dimension, orders)


@rdp_of.register
def _(event: StaircaseBallEvent, orders: Array) -> Array:
    shift = 1 / (event.ratio * math.sqrt(event.dimension))
    if shift > 1.0 + 1e-9:
        raise CannotAccount(
            f"staircase noise of steps smaller than a coordinate's part of the move, {shift:g}, has no bound here."
        )
    return rdp_staircase_ball(event.ratio, event.epsilon, event.nu, event.dimension, orders)


@rdp_of.register
def _(event: DiscreteGaussianEvent, orders: Array) -> Array:
    return rdp_discrete_gaussian(event, orders)


@rdp_of.register
def _(event: PoissonSampled, orders: Array) -> Array:
    ratio = merged_gaussian(event.event)
    if not is_proven(event):
        raise _no_bound(event)
    if event.rate == 1.0:
        return rdp_of(event.event, orders)
    if isinstance(event.event, PureEvent | StaircaseEvent):
        return _of_atoms(event.event, event.rate, orders)
    if event.relation is Relation.ADD_REMOVE and ratio is not None:
        return rdp_poisson_gaussian(event.rate, ratio, orders)
    if event.relation is Relation.ADD_REMOVE and isinstance(event.event, LaplaceEvent):
        return rdp_poisson_laplace(event.rate, event.event.ratio, orders)
    if event.relation is Relation.REPLACE and ratio is not None:
        return rdp_poisson_replace_gaussian(event.rate, ratio, orders)
    if event.relation is Relation.ADD_REMOVE and not event.event.parts():
        sampled = rdp_poisson(event.rate, partial(rdp_of, event.event), orders, is_symmetric_noise(event.event))
        return np.minimum(sampled, rdp_of(event.event, orders))
    raise _no_bound(event)


@rdp_of.register
def _(event: FixedSizeSampled, orders: Array) -> Array:
    ratio = merged_gaussian(event.event)
    if not is_proven(event):
        raise _no_bound(event)
    if event.rate == 1.0:
        return rdp_of(event.event, orders)
    if ratio is None and event.relation is Relation.REPLACE and not event.event.parts():
        return np.minimum(rdp_fixed_size(event.rate, partial(rdp_of, event.event), orders), rdp_of(event.event, orders))
    if ratio is not None and event.relation is Relation.REPLACE:
        return np.minimum(rdp_fixed_size_gaussian(event.rate, ratio, orders), rdp_gaussian(ratio, orders))
    if ratio is not None and event.relation is Relation.ADD_REMOVE:
        return rdp_poisson_gaussian(event.rate, ratio, orders)
    raise _no_bound(event)


def _no_bound(event: PoissonSampled | FixedSizeSampled) -> CannotAccount:
    name, inner = type(event).__name__, type(event.event).__name__
    return CannotAccount(f"{name} of {inner} has no Renyi bound under {event.relation}. Use a Gaussian.")
