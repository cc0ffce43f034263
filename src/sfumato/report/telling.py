"""How well anybody can tell: the errors that nobody can avoid who guesses at one unit from what was released.

A test looks at everything that was released and says in which of two neighbouring worlds it was made, e.g. with the client or
without it. Where it says "with" though the client was not there, that is a false alarm; where it says "without" though the
client was there, it has missed it. A trade-off curve is a floor under the share missed, for each share of false alarms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from sfumato.account import accountant
from sfumato.account.event import Event, why_not_private
from sfumato.account.inside import costs_nothing
from sfumato.account.protocol import Accountant
from sfumato.errors import CannotAccount

_POINTS = 300  # their squares are the shares: dense where the curve is steep, and no step is much wider than the one before it
_ROUND_OFF = 1e-12  # the floors come in float64, from terms of at most 1; this is more than they can be wrong by


@dataclass(frozen=True)
class Telling:
    """What the accountant of an event says about every test of one unit, in either direction.

    Why it is true: `Accountant.tradeoff` is a proven floor under the missed share. For Gaussians it is their own curve, which
    is symmetric. Otherwise it is the largest of the lines that (epsilon, delta) draws at many epsilons, and each delta is the
    larger of both directions, so it does not matter which of the two worlds a false alarm is raised in. Where clients went
    through different things it is the floor of the one that is easiest to find. Nothing is priced here.
    """

    event: Event
    by: Accountant = field(default_factory=accountant)

    def found(self, false_alarms: float) -> float:
        """The most that anybody finds of the units that are there, who raises so many false alarms: a ceiling."""
        return min(1.0, 1.0 - self.by.tradeoff(self.event, false_alarms) + _ROUND_OFF)

    @property
    def right(self) -> float:
        """How often the best guess is right where both worlds are as likely: half of 1 plus delta at epsilon 0.

        Guessing right has the chance 1/2 (1 - a) + 1/2 (1 - f(a)), and delta(0) is the largest 1 - a - f(a) of any test.
        """
        return min(1.0, (1.0 + self.by.delta(self.event, 0.0)) / 2 + _ROUND_OFF)

    @property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """Shares of false alarms, and a floor under the share missed that holds along straight lines between them.

        A trade-off curve is convex, so that straight lines between its points lie above it. Each point therefore takes the
        floor of the next: the curve falls, so from one point to the next it is at least that, and the line is at most that. Steps
        widen evenly, so that what is taken off changes as smoothly as the curve does.
        """
        return _curve(self.event, cast(Any, self.by))


@lru_cache(maxsize=64)
def _curve(event: Event, by: Accountant) -> tuple[tuple[float, float], ...]:
    shares = [(at / _POINTS) ** 2 for at in range(_POINTS + 1)]
    floors = [1.0 - Telling(event, by).found(share) for share in shares]
    return tuple(zip(shares, [*floors[1:], 0.0], strict=True))


def telling(event: Event | None, by: Accountant | None = None) -> Telling | None:
    """What is known of an event; None where nothing happened, nothing is proven, or no accountant knows it.

    `by` prices it: what the basis of a ledger says, or by default the tight accountants.
    """
    if event is None or costs_nothing(event) or why_not_private(event) is not None:
        return None
    try:
        (by or accountant()).tradeoff(event, 0.5)
    except CannotAccount:
        return None
    return Telling(event, by or accountant())
