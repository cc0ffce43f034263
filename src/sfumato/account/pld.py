"""The privacy-loss accountant: proven, tight to a few parts in 10,000, and fast.

The printed epsilon is an upper bound. Four things could spoil it, and each is paid for:
  grid        connect-the-dots only moves the loss up (`loss_grid.grid`); the step is chosen so that epsilon rises by less
              than `precision` of itself, judged by the gap between the cumulants of the grid from above and from below;
              where no grid is fine enough for a single step, blocks of steps are composed first (`loss_blocks`)
  far tail    what lies above the window has a Chernoff bound, which is added
  wrapping    the transform is circular: what lies below the window re-enters inside it, which can only add to delta
  round-off   each entry of the transform carries a bound on its error; their sum is added to every cell

The law is tilted by e^{tilt l} before the transform, with the tilt of the best Renyi order, and untilted after it.
Round-off is then relative to the tail that is asked for, so delta = 1e-30 is as precise as delta = 1e-3, and the window
only has to hold the neighbourhood of epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sfumato.account.checks import check_delta, check_epsilon, check_rate
from sfumato.account.convert import epsilon_from_rdp, log_delta_from_rdp, tradeoff_from_profile
from sfumato.account.event import Event, GaussianEvent, LaplaceEvent, PureEvent, Real, StaircaseEvent, compose
from sfumato.account.few_losses import few_losses
from sfumato.account.inside import known_cost
from sfumato.account.loss_grid import Loss
from sfumato.account.loss_tree import FINE, ROUGH, View, directions, leaves, one_way, steps
from sfumato.account.noises import Array
from sfumato.account.shuffled import ShuffledEvent
from sfumato.account.tail import FAST_WINDOW, LARGEST_WINDOW, Tail, one_step_delta, one_step_epsilon, window
from sfumato.errors import CannotAccount

PRECISION = 1e-4
_LEAST_NOISE = 1e-5
_LARGEST_LOSS = 700.0  # beyond it the rarer of two answers has no representable chance
_LOOSE = 2e-3  # the share of epsilon from which on a grid is too coarse for one step, and blocks are composed
_TILTS = 2.0 ** np.arange(-20.0, 41.0, 3.0)


@dataclass(frozen=True)
class Pld:
    """Prices an event by its privacy-loss distribution.

    >>> from sfumato.account.event import GaussianEvent, PoissonSampled, Repeated
    >>> round(Pld().epsilon(Repeated(PoissonSampled(0.05, GaussianEvent(1.0)), 200), 1e-5), 3)
    4.766
    """

    precision: float = PRECISION
    name: str = "pld"

    def check(self, event: Event) -> None:
        """Refuse an event, by name, for which no dominating pair is known."""
        if known_cost(event) is None:
            check_noise(event)
            directions(event)

    def epsilon(self, event: Event, delta: Real) -> float:
        check_delta(delta)
        known = known_cost(event)
        if known is not None:
            return known
        check_noise(event)
        best, event = 0.0, compose(event)
        for backward in directions(event):
            best = max(best, _epsilon(event, backward, delta, self.precision, best))
        return best

    def delta(self, event: Event, epsilon: Real) -> float:
        check_epsilon(epsilon)
        known = known_cost(event)
        if known is not None:
            return float(known > 0)
        event = compose(event)
        return max(_delta(event, backward, epsilon, self.precision) for backward in directions(event))

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        check_rate(false_positive_rate)
        known = known_cost(event)
        if known is not None:
            return 0.0 if known else 1.0 - false_positive_rate
        return tradeoff_from_profile(*_profile(event, self.precision), false_positive_rate)


def _epsilon(event: Event, backward: bool, delta: Real, precision: float, known: float) -> float:
    """The epsilon of one direction, or anything at most `known` if it is below that."""
    if leaves(event) == [event]:
        return one_step_epsilon(one_way(event, backward), delta)
    if (few := few_losses(event, backward)) is not None:
        return few.epsilon(delta)
    view = View(event, backward, math.log(delta) - 14)
    rough = view.loss()
    if delta <= rough.infinite:
        return math.inf
    tilt, simple = _best_tilt(rough, lambda order, rho: epsilon_from_rdp(order, rho, delta - rough.infinite))
    if simple <= known:
        return simple
    loss, step = _tuned(view, tilt, simple, precision)
    found = max(0.0, min(simple, Tail(loss, step, tilt, simple).epsilon(delta)))
    if found > known and _excess(loss, tilt) > _LOOSE * found:
        found = max(0.0, min(found, Tail(view.loss(step, FINE, blocks=True), step, tilt, simple).epsilon(delta)))
    return found


def _delta(event: Event, backward: bool, epsilon: Real, precision: float) -> float:
    if leaves(event) == [event]:
        return one_step_delta(one_way(event, backward), epsilon)
    if (few := few_losses(event, backward)) is not None:
        return few.delta(epsilon)
    whole = View(event, backward, -math.inf).loss()
    _, simple = _best_tilt(whole, lambda order, rho: log_delta_from_rdp(order, rho, epsilon))
    if simple < -700:  # beyond the largest loss
        return math.exp(simple) + whole.infinite
    view = View(event, backward, simple - 18)
    bound = float(tail_from(view, epsilon, precision).deltas(np.array([float(epsilon)]))[0])
    return min(1.0, math.exp(min(simple, 0.0)) + whole.infinite, bound)


def tail_from(view: View, epsilon: Real, precision: float = PRECISION) -> Tail:
    """delta at `epsilon` and some way above it, on a grid that is fine enough there."""
    tilt, _ = _best_tilt(view.loss(), lambda order, rho: log_delta_from_rdp(order, rho, epsilon))
    _, mean, variance = view.loss().moments(tilt)
    spread = max(math.sqrt(variance), 1e-7 * abs(mean))
    loss, step = _tuned(view, max(tilt, 0.5 / spread), max(epsilon, spread), precision)
    if _excess(loss, max(tilt, 0.5 / spread)) > _LOOSE * max(epsilon, spread):
        loss = view.loss(step, FINE, blocks=True)
    return Tail(loss, step, tilt, epsilon)


@lru_cache(maxsize=16)
def _profile(event: Event, precision: float) -> tuple[Array, Array]:
    """delta at every epsilon >= 0 of a grid, the larger of both directions."""
    tails = []
    for backward in directions(event):
        view = View(event, backward, math.log(1e-9))
        loss, step = _tuned(view, 1.0, math.sqrt(view.loss().moments(0.0).variance), precision)
        tails.append(Tail(loss, step, 0.0, 0.0))
    losses = tails[0].losses
    epsilons = np.maximum(losses[(losses > -tails[0].step / 2) & (losses < 300)], 0.0)
    return epsilons, np.max([tail.deltas(epsilons) for tail in tails], axis=0)


def _best_tilt(loss: Loss, bound: Callable[[Array, Array], Array]) -> tuple[float, float]:
    """The tilt (Renyi order minus one) with the smallest bound, and that bound."""
    tilts = _TILTS
    for reach in (2.25, 0.6, 0.16, 0.0):
        values = bound(1 + tilts, loss.cumulants(tilts) / tilts)
        at = int(np.nanargmin(values))
        best = float(tilts[at]), float(values[at])
        tilts = best[0] * 2.0 ** np.linspace(-reach, reach, 7)
    return best


def _tuned(view: View, tilt: float, epsilon: Real, precision: float) -> tuple[Loss, float]:
    """The event on the coarsest grid that is precise enough and not too large, and the step of the grid."""
    rough = view.loss()
    wanted = precision * max(epsilon, 0.05 * math.sqrt(rough.moments(tilt).variance))
    spread = max(math.sqrt(rough.moments(tilt).variance), 2 * wanted)
    spacing = ROUGH * min(1.0, max(0.04, math.sqrt(0.3 * wanted / max(_excess(rough, tilt), 1e-300))))
    spacing = ROUGH * 2.0 ** (math.floor(2 * math.log2(spacing / ROUGH)) / 2)
    low, high, *_ = window(rough, tilt, epsilon)
    width = max(high - low, 20 * spread)
    least = width / LARGEST_WINDOW
    step = min(spread / 4, math.sqrt(12 * wanted / (steps(view.event) * (1 + tilt))))
    good: tuple[Loss, float] | None = None
    for _ in range(8):
        step = 2.0 ** (math.floor(2 * math.log2(max(step, least))) / 2)
        loss, used = view.loss(step, spacing), step
        error = _excess(loss, tilt)
        enough = error <= wanted or (error <= 6 * wanted and width / step >= FAST_WINDOW)
        if good and not enough:
            return good
        better = min(step * min(max(math.sqrt(0.6 * wanted / max(error, 1e-300)), 0.02), 50.0), spread / 6)
        if (enough and (error >= 0.1 * wanted or max(better, least) < 1.5 * step)) or step < 1.01 * least:
            return loss, used
        good = (loss, used) if enough else None
        step = better
    return good or (loss, used)


def _excess(loss: Loss, tilt: float) -> float:
    """How far the grid lifts epsilon: what it adds to the cumulant over the tilt, as a share of a small cumulant.

    Where the cumulant is below 1, epsilon is decided by rare steps, and what counts is the relative error of their part.
    """
    cumulant, below = loss.moments(tilt).cumulant, float(loss.cumulants(np.array([tilt]), below=True)[0])
    return (cumulant - below) / tilt / -math.expm1(-max(cumulant, 1e-15))


def check_noise(event: Event) -> None:
    """Noise this small proves an epsilon in the billions, and a grid over such losses fits no memory."""
    for part in event.walk():
        if isinstance(part, GaussianEvent | LaplaceEvent) and part.ratio < _LEAST_NOISE:
            raise CannotAccount(
                f"noise of {part.ratio:g} times the sensitivity is too small to account for. "
                f"Use at least {_LEAST_NOISE:g}."
            )
        if isinstance(part, PureEvent | StaircaseEvent | ShuffledEvent) and part.epsilon > _LARGEST_LOSS:
            raise CannotAccount(f"a release of epsilon {part.epsilon:g} hides nothing. Use at most {_LARGEST_LOSS:g}.")
