"""One Renyi order, fixed before the first output: what an adaptive ledger costs at every stop (PRIVACY R13).

Noise, sampling, rounds and whole runs may be chosen from what was released, and so may the moment to stop. Let L be the privacy
loss of all that happened up to the stop, rho_i the divergence of the i-th event at the order a, and S their sum. Then

  epsilon = S + log(1 - 1/a) - log(a delta) / (a - 1)      holds at every delta.

Proof. Whatever was chosen, E e^((a-1) L_i) <= e^((a-1) rho_i) given the past, so exp((a-1)(L_n - S_n)) is a non-negative
supermartingale and its expectation at the stop is at most 1. With c = log(1 - 1/a) - log(a delta)/(a - 1), for all y,
(1 - e^(c-y))+ <= delta e^((a-1) y): both sides and their slopes agree at y = c - log(1 - 1/a), where the left side is 1/a, and
log(1 - e^(c-y)) is concave in y where the logarithm of the right side is a line. Set y = L - S: E (1 - e^(epsilon - L))+ <= delta.

A loss may be infinite, with a probability that some pairs have and that cutting a tail adds. By the union bound all of it together
is at most the sum of those probabilities. `INFINITE` bounds that sum, is taken from every delta, and what passes it is refused:
so it too is fixed before the first output. On what is left the supermartingale is the same.

rho comes from the dominating pair of the event: a pair with larger hockey-stick divergences has larger Renyi divergences,
which are mixtures of them (Zhu, Dong, Wang 2022). Its losses are cut into cells and the dots are connected (`loss_grid.grid`),
which gives a pair of finitely many losses that dominates it. So the sum over them is an upper bound without an error term;
rounding is added.
Events without a pair have a bound on their divergence in `rdp.rdp_of`; an event with neither is refused by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sfumato.account.checks import check_delta, check_epsilon, check_rate
from sfumato.account.convert import epsilon_from_rdp, log_delta_from_rdp, tradeoff_from_profile
from sfumato.account.dominating import merged_gaussian, pair_of
from sfumato.account.event import Composed, Event, Mixture, Nothing, Real, Repeated, compose, why_not_private
from sfumato.account.inside import dearest, each_client, known_cost
from sfumato.account.loss_grid import Grid, grid
from sfumato.account.loss_tree import FINE, one_way
from sfumato.account.noises import ROUNDING, Array
from sfumato.account.pld import check_noise
from sfumato.account.rdp import rdp_of
from sfumato.errors import BadValue, CannotAccount

INFINITE = 1e-18
ORDERS = tuple(float(order) for order in 1 + 2.0 ** (np.arange(-96, 193) / 16))  # 1.016 to 4,097
_LEAST = 1e-300  # of the tail that is cut from a pair: what is smaller may have come out as 0
_UP = 1 + 1e-12  # sums and products of a few numbers, rounded up


@dataclass(frozen=True)
class AtOrder:
    """Prices what happened by its Renyi divergences at one order: a proof also where later events were chosen from outputs.

    Where clients went through different things, the largest over them.

    >>> from sfumato.account.event import GaussianEvent, PoissonSampled
    >>> event = Repeated(PoissonSampled(0.05, GaussianEvent(1.0)), 200)
    >>> round(AtOrder(order_for(event, 1e-5)).epsilon(event, 1e-5), 2)
    5.37
    """

    order: float

    def __post_init__(self) -> None:
        _check_order(self.order)

    @property
    def name(self) -> str:
        """How it is written in a guarantee."""
        return f"adaptive: Renyi divergences at order {self.order:.6g}"

    def epsilon(self, event: Event, delta: Real) -> float:
        check_delta(delta)
        known = known_cost(event)
        if known is not None:
            return known
        return epsilon(divergence(event, self.order), self.order, delta)

    def delta(self, event: Event, epsilon: Real) -> float:
        check_epsilon(epsilon)
        known = known_cost(event)
        if known is not None:
            return float(known > 0)
        return _delta(divergence(event, self.order), self.order, epsilon)

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        check_rate(false_positive_rate)
        known = known_cost(event)
        if known is not None:
            return 0.0 if known else 1.0 - false_positive_rate
        rho = divergence(event, self.order)
        epsilons = np.append(0.0, np.geomspace(1e-6, 600.0, 400))
        deltas = np.array([_delta(rho, self.order, float(each)) for each in epsilons])
        return tradeoff_from_profile(epsilons, deltas, false_positive_rate)


@dataclass(frozen=True)
class FittedOrder:
    """Prices what a first run is to do at the order that suits it at `fit`, before that order is fixed: to find its noise.

    >>> from sfumato.account.event import GaussianEvent
    >>> event = Repeated(GaussianEvent(13.0), 100)
    >>> FittedOrder(1e-5).epsilon(event, 1e-5) == AtOrder(order_for(event, 1e-5)).epsilon(event, 1e-5)
    True
    """

    fit: float
    name: str = "adaptive"

    def at(self, event: Event) -> AtOrder:
        """The accountant that would price this event."""
        return AtOrder(order_for(event, self.fit))

    def epsilon(self, event: Event, delta: Real) -> float:
        known = known_cost(event)
        return self.at(event).epsilon(event, delta) if known is None else known

    def delta(self, event: Event, epsilon: Real) -> float:
        known = known_cost(event)
        return self.at(event).delta(event, epsilon) if known is None else float(known > 0)

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        check_rate(false_positive_rate)
        known = known_cost(event)
        if known is not None:
            return 0.0 if known else 1.0 - false_positive_rate
        return self.at(event).tradeoff(event, false_positive_rate)


def epsilon(rho: Real, order: float, delta: Real) -> float:
    """The epsilon at `delta` of everything whose divergences at the order add up to `rho`, at whatever moment it stops.

    >>> round(epsilon(0.5, 8.0, 1.3516813580297707e-06), 9)
    2.0
    """
    check_delta(delta)
    _check_order(order)
    left = delta - INFINITE
    if left <= 0.0:
        return math.inf
    return max(0.0, float(epsilon_from_rdp(order, rho, left)) + 1e-12)


def _delta(rho: float, order: float, epsilon: Real) -> float:
    return min(1.0, math.exp(min(0.0, float(log_delta_from_rdp(order, rho, epsilon)))) * _UP + INFINITE)


def divergence(event: Event, order: float) -> float:
    """The Renyi divergence of an event at one order, from above: the larger of both directions, and of all clients.

    Mixture with visible participation: log(1 - q + q e^((a-1) rho)) / (a - 1). Repetition and composition add.

    >>> from sfumato.account.event import GaussianEvent
    >>> round(divergence(Repeated(GaussianEvent(2.0), 4), 8.0), 9)
    4.0
    """
    _check_order(order)
    found = [_summed(own, (float(order),)) for own in dearest(each_client(event))]
    if (infinite := max(one.infinite for one in found)) > INFINITE:
        raise CannotAccount(
            f"{event.words()}: its privacy loss is infinite with a probability of up to {infinite:.3g}, more than an adaptive "
            f"ledger takes from delta ({INFINITE:g}). Use a plan."
        )
    return max(float(one.rho[0]) for one in found)


def order_for(event: Event, delta: Real) -> float:
    """The order of `ORDERS` with the smallest epsilon at `delta` for these events, which are known before the first output.

    The order holds for everything that comes later, so it is taken from what a first run is to do and never from epsilon alone.

    >>> from sfumato.account.event import GaussianEvent
    >>> round(order_for(Repeated(GaussianEvent(13.0), 100), 1e-5), 2)
    6.66
    """
    check_delta(delta)
    clients = [_summed(own, ORDERS).rho for own in dearest(each_client(compose(event)))]
    orders = np.array(ORDERS)
    return ORDERS[int(np.argmin(np.max([epsilon_from_rdp(orders, rho, delta) for rho in clients], axis=0)))]


@dataclass(frozen=True, eq=False)
class _Divergences:
    """Divergences at some orders, and the probability of an infinite loss, which they leave out."""

    rho: Array
    infinite: float = 0.0


def _summed(event: Event, orders: tuple[float, ...]) -> _Divergences:
    """The one place here that knows repetition, composition and participation."""
    tilts = np.array(orders) - 1
    if (why := why_not_private(event)) is not None:
        raise CannotAccount(f"NonPrivate ({why}): nothing bounds its divergence. Leave it out of an adaptive ledger.")
    ratio = merged_gaussian(event)
    if ratio is not None:
        return _Divergences((tilts + 1) / 2 / ratio / ratio * _UP)
    match event:
        case Nothing():
            return _Divergences(np.zeros(len(tilts)))
        case Repeated(event=inner, times=times):
            one = _summed(inner, orders)
            return _Divergences(times * one.rho * _UP, times * one.infinite * _UP)
        case Composed(events=events):
            parts = [_summed(part, orders) for part in events]
            rho = np.sum([part.rho for part in parts], axis=0) if parts else np.zeros(len(tilts))
            return _Divergences(rho * _UP, math.fsum(part.infinite for part in parts) * _UP)
        case Mixture(probability=probability, event=inner):
            one = _summed(inner, orders)
            grown = tilts * one.rho
            away = math.log1p(-probability) if probability < 1 else -math.inf
            many = np.logaddexp(away, math.log(probability) + grown)
            few = np.log1p(probability * np.expm1(np.minimum(grown, 1.0)))
            return _Divergences(np.where(grown < 1.0, few, many) / tilts * _UP, probability * one.infinite * _UP)
    return _leaf(event, orders)


@lru_cache(maxsize=256)
def _leaf(event: Event, orders: tuple[float, ...]) -> _Divergences:
    """One event that is not made of others: from its pair, or where it has none from its own bound."""
    check_noise(event)
    try:
        ways = [pair_of(event)] if pair_of(event).symmetric else [one_way(event, way) for way in (False, True)]
    except CannotAccount as refusal:
        try:
            return _Divergences(np.maximum(rdp_of(event, np.array(orders)) * (1 + 1e-9), 0.0))
        except CannotAccount:
            raise refusal from None
    grids = [grid(pair, 0.0, FINE) for pair in ways]
    tilts = np.array(orders) - 1
    rho = np.max([_cumulants(one, tilts) for one in grids], axis=0) / tilts
    return _Divergences(np.maximum(rho, 0.0), max(_LEAST, *(one.infinite for one in grids)))


def _cumulants(found: Grid, tilts: Array) -> Array:
    """log E e^(tilt L) over the finite losses, and what rounding can have taken from it.

    An exponent m + t l is off by some units in the last place of |m| + |t l|, so the sum is off by their weighted mean, and
    by a unit for each doubling of the terms.
    """
    exponents = found.log_mass + np.multiply.outer(tilts, found.losses)
    top = exponents.max(axis=1, keepdims=True)
    weights = np.exp(exponents - top)
    total = weights.sum(axis=1)
    sizes = np.abs(found.log_mass) + np.multiply.outer(tilts, np.abs(found.losses))
    doubt = 2 * ROUNDING * (16 + math.log2(len(found.losses)) + 2 * (weights * sizes).sum(axis=1) / total)
    return np.asarray(np.log(total) + top[:, 0] + doubt)


def _check_order(order: Real) -> None:
    if not 1.0 < order < math.inf:
        raise BadValue(f"order={order}: a Renyi order is a finite number above 1, e.g. 8.")
