"""The same event with other noise: the family within which a few thousand runs say much about epsilon.

Between the two rates that a test shows and epsilon at a small delta lies a whole trade-off curve. A test alone shows an
epsilon of at most the log of the number of runs; but if the mechanism is the one that it states, but for the size of its noise,
then a single point that lies under the curve of a member rules out this member and all noisier ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sfumato.account import accountant
from sfumato.account.event import Event, Unit, why_not_private
from sfumato.audit.bounds import Errors
from sfumato.calibration import noise_and_clip, with_noise
from sfumato.errors import SfumatoError
from sfumato.round import Round

_STEPS = 11  # halvings of a factor of 2 in the noise: to 0.04 percent
_DOUBLINGS = 10
_HALVINGS = 3  # below the stated noise: what is rejected there is broken enough


@dataclass(frozen=True)
class Family:
    """What a round costs with any noise, by its noise multiplier: derived, so there is no second source of a price."""

    round: Round
    population: int
    dimension: int
    unit: Unit
    view: str  # world or server
    rounds: int

    @property
    def noise(self) -> float:
        """The multiplier that the round states."""
        found, _ = noise_and_clip(self.round)
        assert found is not None, "a family has noise"
        return found

    def event(self, noise: float) -> Event | None:
        """What all rounds together cost with this noise; None where nothing is proven."""
        try:
            changed = self.round if noise == self.noise else with_noise(self.round, noise)
            proof = changed.derive(population=self.population, dimension=self.dimension).units.get(self.unit)
        except SfumatoError:
            return None
        found = None if proof is None else proof.seen(self.view, self.rounds)
        return None if found is None or why_not_private(found) is not None else found

    @staticmethod
    def of(
        round: Round, *, population: int, dimension: int, unit: Unit, view: str = "world", rounds: int = 1
    ) -> Family | None:
        """The family of a round; None where its noise cannot be chosen, or more of it does not cost less."""
        if noise_and_clip(round)[0] is None:
            return None
        found = Family(round, population, dimension, unit, view, rounds)
        here, more = found.event(found.noise), found.event(2.0 * found.noise)
        if here is None or more is None:
            return None
        price = accountant()
        return found if price.epsilon(more, 1e-5) < price.epsilon(here, 1e-5) else None

    def lower_bound(self, errors: Errors, delta: float, alpha: float) -> float:
        """The epsilon of the least noisy member that the errors reject.

        States: if the mechanism is a member, then with probability 1 - alpha it has less noise than that, and so at least
        this epsilon. A member is rejected where its trade-off curve at the upper limit of one error rate lies above the upper
        limit of the other: no test on it errs so little (curves fall, so the limits stand for the rates). Members with more
        noise have higher curves and are rejected too. If the stated member itself is rejected, then what it states is false,
        whatever the mechanism is: that needs no family.
        """
        rates = errors.upper(alpha)
        return self.least_rejected(lambda event: rejects(event, *rates), delta)

    def least_rejected(self, rejected: Callable[[Event], bool], delta: float) -> float:
        """Epsilon of the least noisy member that is rejected; those with more noise are rejected too."""

        def is_rejected(noise: float) -> bool:
            event = self.event(noise)
            return event is not None and rejected(event)

        high = self.noise
        if is_rejected(high):
            low = high / 2.0
            for _ in range(_HALVINGS):
                if self.event(low) is None or not is_rejected(low):
                    break
                low, high = low / 2.0, low
        else:
            for _ in range(_DOUBLINGS):
                low, high = high, 2.0 * high
                if is_rejected(high):
                    break
            else:
                return 0.0
        for _ in range(_STEPS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if is_rejected(middle) else (middle, high)
        event = self.event(high)
        assert event is not None, "it was rejected"
        return accountant().epsilon(event, delta)


def rejects(event: Event, false_positive: float, false_negative: float) -> bool:
    """Whether a test with errors of at most these would be impossible if no more than this event had happened."""
    price = accountant()
    return (
        price.tradeoff(event, false_positive) > false_negative or price.tradeoff(event, false_negative) > false_positive
    )
