"""What every accountant answers, and how one is found by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from sfumato.account.event import Event, Real
from sfumato.errors import BadValue, nearest


@runtime_checkable
class Accountant(Protocol):
    """Says what an event costs. Every answer is proven; what cannot be proven raises CannotAccount."""

    @property
    def name(self) -> str:
        """The word that `accountant` knows it by."""

    def epsilon(self, event: Event, delta: Real) -> float:
        """An epsilon that holds at `delta`; infinite if there is none."""

    def delta(self, event: Event, epsilon: Real) -> float:
        """A delta that holds at `epsilon`."""

    def tradeoff(self, event: Event, false_positive_rate: Real) -> float:
        """A floor under the false negative rate of every test with this false positive rate."""


def accountant(name: str = "auto") -> Accountant:
    """The accountant of that name: auto, pld, rdp or gdp.

    >>> accountant("gdp").name
    'gdp'
    """
    from sfumato.account.auto import Auto
    from sfumato.account.gdp import Gdp
    from sfumato.account.pld import Pld
    from sfumato.account.rdp import Rdp

    known: dict[str, Callable[[], Accountant]] = {"auto": Auto, "gdp": Gdp, "pld": Pld, "rdp": Rdp}
    if name not in known:
        raise BadValue(f"the accountant {name!r} is not known. {nearest(name, known)}")
    return known[name]()
