"""An event that the library does not know: refused by name, and accountable once registered."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from sfumato.account import accountant
from sfumato.account.dominating import pair_of
from sfumato.account.event import Event, GaussianEvent, PoissonSampled, Repeated, register
from sfumato.account.noises import Array
from sfumato.account.pairs import Cells, Pair, cells
from sfumato.account.rdp import rdp_of
from sfumato.errors import CannotAccount


@register
@dataclass(frozen=True)
class Stranger(Event):
    pass


@register
@dataclass(frozen=True)
class Coin(Event):
    """Randomised response with log-odds `odds`."""

    odds: float


@dataclass(frozen=True)
class CoinPair:
    odds: float
    symmetric: bool = True

    def losses(self, spacing: float) -> Array:
        return np.array([-1.00001, -0.99999, 0.0, 0.99999, 1.00001]) * self.odds

    def cells(self, cuts: Array) -> Cells:
        true = 1 / (1 + math.exp(-self.odds))
        where = np.searchsorted(cuts, [-self.odds, self.odds])
        p, q = np.zeros(len(cuts) + 1), np.zeros(len(cuts) + 1)
        np.add.at(p, where, [1 - true, true])
        np.add.at(q, where, [true, 1 - true])
        with np.errstate(divide="ignore"):
            return cells(np.log(p), np.log(q), np.zeros(len(p)))


@pair_of.register
def _(event: Coin) -> Pair:
    return CoinPair(event.odds)


@rdp_of.register
def _(event: Coin, orders: Array) -> Array:
    true, false = -math.log1p(math.exp(-event.odds)), -math.log1p(math.exp(event.odds))
    up, down = orders * true + (1 - orders) * false, orders * false + (1 - orders) * true
    return np.asarray(np.logaddexp(up, down) / (orders - 1))


@pytest.mark.parametrize("name", ["auto", "pld", "rdp"])
def test_an_unknown_event_is_refused_by_name(name: str) -> None:
    for event in (Stranger(), Repeated(Stranger(), 3)):
        with pytest.raises(CannotAccount, match="Stranger"):
            accountant(name).epsilon(event, 1e-5)
    with pytest.raises(CannotAccount, match="Stranger"):
        accountant(name).epsilon(PoissonSampled(0.1, Stranger()), 1e-5)


def exact_coins(odds: float, times: int, epsilon: float) -> float:
    true = 1 / (1 + math.exp(-odds))
    total = 0.0
    for heads in range(times + 1):
        chance = math.comb(times, heads) * true**heads * (1 - true) ** (times - heads)
        total += chance * max(0.0, 1 - math.exp(epsilon - (2 * heads - times) * odds))
    return total


@pytest.mark.parametrize(("odds", "times"), [(0.3, 40), (1.0, 9), (0.05, 400)])
def test_a_registered_event_is_priced_like_the_exact_sum(odds: float, times: int) -> None:
    event = Repeated(Coin(odds), times)
    for epsilon in (0.5, 1.5, 3.0):
        exact = exact_coins(odds, times, epsilon)
        assert exact * (1 - 1e-9) <= accountant().delta(event, epsilon) <= exact * 1.02 + 1e-12
    for delta in (1e-2, 1e-6):
        found = accountant("pld").epsilon(event, delta)
        assert exact_coins(odds, times, found) <= delta * (1 + 1e-9)
        assert exact_coins(odds, times, found * (1 - 2e-3)) >= delta * (1 - 1e-9)
        assert accountant("rdp").epsilon(event, delta) >= found * (1 - 1e-4)


def test_auto_falls_back_to_renyi_where_only_that_is_known() -> None:
    @dataclass(frozen=True)
    class OnlyRenyi(Event):
        rho: float

    rdp_of.register(OnlyRenyi)(lambda event, orders: event.rho * orders)
    event = Repeated(OnlyRenyi(0.01), 10)
    assert accountant().epsilon(event, 1e-5) == accountant("rdp").epsilon(event, 1e-5)
    assert accountant().epsilon(event, 1e-5) >= accountant().epsilon(Repeated(GaussianEvent(math.sqrt(50)), 10), 1e-5)
