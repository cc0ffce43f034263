"""The tightest proven accountant for each event: exact where it is Gaussian, the privacy-loss distribution elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.account.dominating import merged_gaussian
from sfumato.account.event import Event, Real
from sfumato.account.gdp import Gdp
from sfumato.account.inside import dearest, each_client
from sfumato.account.pld import Pld, check_noise
from sfumato.account.protocol import Accountant
from sfumato.account.rdp import Rdp
from sfumato.errors import CannotAccount


@dataclass(frozen=True)
class Auto:
    """Gdp for compositions of Gaussians, Pld for the rest, Rdp where only a Renyi bound is registered.

    Where clients went through different things, the largest over them.

    >>> from sfumato.account.event import GaussianEvent
    >>> Auto().choose(GaussianEvent(1.0)).name
    'gdp'
    """

    name: str = "auto"

    def choose(self, event: Event) -> Accountant:
        """The accountant that will price this event; where it depends on the client, an Auto under the names of all."""
        if (every := each_client(event)) != [event]:
            return Auto(" and ".join(sorted({self.choose(own).name for own in every})))
        if merged_gaussian(event) is not None:
            return Gdp()
        check_noise(event)
        try:
            Pld().check(event)
        except CannotAccount as refusal:
            try:
                Rdp().check(event)
            except CannotAccount:
                raise refusal from None
            return Rdp()
        return Pld()

    def epsilon(self, event: Event, delta: Real) -> float:
        return max(self.choose(own).epsilon(own, delta) for own in dearest(each_client(event)))

    def delta(self, event: Event, epsilon: Real) -> float:
        return max(self.choose(own).delta(own, epsilon) for own in dearest(each_client(event)))

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        return min(self.choose(own).tradeoff(own, false_positive_rate) for own in dearest(each_client(event)))
