"""UDP-FL (Feng et al. 2024): what its one-dimensional formulas say of noise on many coordinates, and what such noise costs.

It accounts Laplace and staircase noise on every coordinate of an L2-clipped gradient by the formula for a single number, at a
shift of the clip norm. Divergences of independent coordinates add up, so that is false beyond one coordinate (PRIVACY B(i)).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from sfumato.account.event import (
    Event,
    GaussianEvent,
    LaplaceBallEvent,
    LaplaceEvent,
    StaircaseBallEvent,
    StaircaseEvent,
)


def as_published(event: Event) -> Event:
    """The same steps, priced by the formulas for one coordinate. A claim, and no bound.

    >>> as_published(LaplaceBallEvent(0.5, 7850))
    LaplaceEvent(ratio=0.5)
    """

    def leaf(one: Event) -> Event:
        if isinstance(one, LaplaceBallEvent):
            return LaplaceEvent(one.ratio)
        return StaircaseEvent(one.epsilon, one.nu) if isinstance(one, StaircaseBallEvent) else one

    return _mapped(event, leaf)


def in_many_dimensions(event: Event) -> Event | None:
    """What Laplace noise under an L2 clip tends to as the dimension grows: a Gaussian whose standard deviation is the scale.

    1 / scale^2 is its Fisher information. It is attained in the limit, so no accounting that says less can be right. None
    where there is no such limit: the staircase has no finite Fisher information.
    """
    if any(isinstance(part, StaircaseBallEvent) for part in event.walk()):
        return None
    return _mapped(event, lambda one: GaussianEvent(one.ratio) if isinstance(one, LaplaceBallEvent) else one)


def _mapped(event: Event, leaf: Callable[[Event], Event]) -> Event:
    """The event with each of its innermost events replaced."""

    def inside(value: Any) -> Any:
        if isinstance(value, Event):
            return _mapped(value, leaf)
        return tuple(inside(one) for one in value) if isinstance(value, tuple) else value

    if not event.parts():
        return leaf(event)
    fields = {part.name: inside(getattr(event, part.name)) for part in dataclasses.fields(event)}  # type: ignore[arg-type]
    return type(event)(**fields)
