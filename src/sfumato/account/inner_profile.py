"""The privacy profile of a whole event at evenly spaced dots, from above, for what is built on a profile."""

from __future__ import annotations

import math

import numpy as np

from sfumato.account.dominating import merged_gaussian
from sfumato.account.event import Event, compose
from sfumato.account.few_losses import few_losses
from sfumato.account.gdp import gdp_delta
from sfumato.account.loss_tree import View, directions, leaves, one_way
from sfumato.account.noises import Array
from sfumato.account.pld import Pld, tail_from
from sfumato.account.tail import one_step_delta
from sfumato.errors import CannotAccount

LARGEST = 300.0  # of the epsilons, whose exponentials are formed
_LEAST = (1e-30, 1e-27, 1e-24)  # of the deltas: what is rarer counts as infinite, as in a selection within a selection
_DOTS = 1000
_DIGITS = 10.0  # how far one tail goes down, as a logarithm
_DEEPER = 24.0  # how much rarer is what it counts as infinite


def inner_profile(event: Event) -> tuple[float, Array]:
    """A step, and delta at 0, step, 2 step, ..., the larger of both directions.

    >>> from sfumato.account.event import GaussianEvent
    >>> step, deltas = inner_profile(GaussianEvent(1.0))
    >>> len(deltas), round(1000 * step, 2), round(float(deltas[0]), 6)
    (1001, 11.74, 0.382925)
    """
    event = compose(event)
    reach, least = next(
        (known for one in _LEAST if (known := (Pld().epsilon(event, one), one))[0] <= LARGEST), (math.inf, 0.0)
    )
    if math.isinf(reach):
        raise CannotAccount(f"{event.words()}: this hides too little for a price by its profile. Use more noise.")
    step = max(reach, 1e-12) * (1 + 1e-9) / _DOTS
    epsilons = step * np.arange(_DOTS + 1.0)
    ratio = merged_gaussian(event)
    if ratio is not None:
        mu = math.nextafter(1 / ratio, math.inf)
        return step, np.array([gdp_delta(mu, float(epsilon)) for epsilon in epsilons])
    found = np.max([_one_way(event, backward, epsilons) for backward in directions(event)], axis=0)
    found[-1] = min(found[-1], least)  # which is what `reach` says
    return step, np.minimum.accumulate(found)


def _one_way(event: Event, backward: bool, epsilons: Array) -> Array:
    if leaves(event) == [event]:
        pair = one_way(event, backward)
        return np.array([one_step_delta(pair, float(epsilon)) for epsilon in epsilons])
    if (few := few_losses(event, backward)) is not None:
        return np.array([few.delta(float(epsilon)) for epsilon in epsilons])
    found, start = np.ones(len(epsilons)), 0
    while True:  # one tail is precise for some digits; where they end the next begins
        first = found[start]
        view = View(event, backward, math.log(first) - _DEEPER)
        tail = tail_from(view, float(epsilons[start]))
        inside = (epsilons >= tail.centre) & (epsilons <= tail.losses[-1])
        found[inside] = np.minimum(found[inside], tail.deltas(epsilons[inside]))
        found = np.minimum.accumulate(found)
        below = found < first * math.exp(-_DIGITS)
        start = int(np.argmax(below))
        if not below.any() or found[start] <= _LEAST[0]:
            return found
