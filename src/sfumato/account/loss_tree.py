"""An event as a tree of losses on one grid: the one place that knows repetition, composition and participation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sfumato.account.dominating import merged_gaussian, pair_of
from sfumato.account.event import Composed, Event, GaussianEvent, Mixture, Nothing, Repeated
from sfumato.account.inside import costs_nothing
from sfumato.account.loss_blocks import in_blocks
from sfumato.account.loss_grid import Grid, Loss, Sometimes, Times, Together, grid
from sfumato.account.pairs import Pair, Reversed

ROUGH, FINE = 0.05, 0.005


@dataclass(frozen=True)
class View:
    """One direction of one event; losses that all steps together exceed with e^`log_rare` at most count as infinite.

    Without them the tilted law has no far tail to make room for.
    """

    event: Event
    backward: bool
    log_rare: float

    def loss(self, step: float = 0.0, spacing: float = ROUGH, *, blocks: bool = False) -> Loss:
        """The loss on a grid, or with step 0 on its own cuts, for estimates; many equal steps in blocks if asked for."""
        if math.isinf(self.log_rare):
            return _loss(self.event, self.backward, None, step, spacing, blocks)
        rare = 2 * math.floor(min(self.log_rare - math.log(steps(self.event)), -8.0) / 2)  # rounded, to be cached
        return _loss(self.event, self.backward, rare, step, spacing, blocks)


def _loss(event: Event, backward: bool, rare: int | None, step: float, spacing: float, blocks: bool) -> Loss:
    """The tree of losses of an event: the one place that knows repetition, composition and participation."""
    ratio = merged_gaussian(event)
    if ratio is not None:
        return _leaf(GaussianEvent(ratio), False, rare, step, spacing)
    match event:
        case Repeated(event=inner, times=times):
            if blocks and rare is not None and leaves(inner) == [inner]:
                largest = _largest(inner, backward, rare)
                if many := in_blocks(one_way(inner, backward), times, step, spacing, largest, rare):
                    return many
            return Times(_loss(inner, backward, rare, step, spacing, blocks), times)
        case Composed(events=events):
            some = [part for part in events if not costs_nothing(part)]
            return Together([_loss(part, backward, rare, step, spacing, blocks) for part in some])
        case Mixture(probability=probability, event=inner):
            return Sometimes(probability, _loss(inner, backward, rare, step, spacing, blocks))
    return _leaf(event, backward, rare, step, spacing)


def one_way(event: Event, backward: bool) -> Pair:
    """The dominating pair of an event, in one direction."""
    pair = pair_of(event)
    return Reversed(pair) if backward and not pair.symmetric else pair


@lru_cache(maxsize=64)
def _leaf(event: Event, backward: bool, rare: int | None, step: float, spacing: float) -> Grid:
    return grid(one_way(event, backward), step, spacing, _largest(event, backward, rare))


def _largest(event: Event, backward: bool, rare: int | None) -> float:
    """The loss that one step exceeds with a chance of e^`rare` at most."""
    if rare is None:
        return math.inf
    whole = _leaf(event, backward, None, 0.0, ROUGH)
    seldom = np.cumsum(np.exp(whole.log_mass)[::-1])[::-1] <= math.exp(rare)
    return float(whole.losses[np.argmax(seldom)]) if seldom[-1] else math.inf


def leaves(event: Event) -> list[Event]:
    """The events that have a pair of their own."""
    match event:
        case Repeated(event=inner) | Mixture(event=inner):
            return leaves(inner)
        case Composed(events=events):
            return [leaf for part in events for leaf in leaves(part)]
    return [] if isinstance(event, Nothing) else [event]


def directions(event: Event) -> tuple[bool, ...]:
    """Forward, and backward unless it is the same."""
    return (False,) if all(pair_of(leaf).symmetric for leaf in leaves(event)) else (False, True)


def steps(event: Event) -> float:
    """How many noisy releases the event holds, on average."""
    match event:
        case Repeated(event=inner, times=times):
            return times * steps(inner)
        case Mixture(probability=probability, event=inner):
            return probability * steps(inner)
        case Composed(events=events):
            return sum(steps(part) for part in events)
    return 1.0
