"""The tightest proven accountant for each event: exact where it is Gaussian, the privacy-loss distribution elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.account.by_client import LargestOverClients, depends_on_client, each_client
from sfumato.account.dominating import merged_gaussian
from sfumato.account.event import Event, Real, Repeated
from sfumato.account.gdp import Gdp
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
        """The accountant that will price this event."""
        if depends_on_client(event):
            return LargestOverClients(" and ".join(sorted({self.choose(own).name for own in each_client(event)})))
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
        """The smallest epsilon that is proven at `delta`."""
        return self.choose(event).epsilon(event, delta)

    def epsilons(self, event: Event, times: Sequence[int], delta: Real) -> list[float]:
        """The epsilon after each number of repetitions in `times`."""
        return [self.epsilon(Repeated(event, count), delta) for count in times]

    def delta(self, event: Event, epsilon: Real) -> float:
        """The smallest delta that is proven at `epsilon`."""
        return self.choose(event).delta(event, epsilon)

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        """A proven floor under the false negative rate of every test with this false positive rate."""
        return self.choose(event).tradeoff(event, false_positive_rate)
