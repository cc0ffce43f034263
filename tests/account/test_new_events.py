"""Events of the library and from outside, each taught with one registration: priced alone and inside others, written, told."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from sfumato.account import accountant
from sfumato.account.divergences import rdp_poisson, rdp_poisson_laplace
from sfumato.account.dominating import merged_gaussian, pair_of
from sfumato.account.event import (
    ByClient,
    Composed,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceBallEvent,
    LaplaceEvent,
    Mixture,
    NonPrivate,
    Nothing,
    PoissonSampled,
    PureEvent,
    Relation,
    Repeated,
    StaircaseEvent,
    from_json,
    register,
    why_not_private,
)
from sfumato.account.inside import costs_nothing, for_client
from sfumato.account.noises import Array
from sfumato.account.pairs import Atoms
from sfumato.account.rdp import rdp_of
from sfumato.account.tail import one_step_delta
from sfumato.errors import CannotAccount
from sfumato.ledger.spent import Cost


@register
@dataclass(frozen=True)
class Correlated(Event):
    """Exactly a Gaussian, by another name."""

    mu: float


@merged_gaussian.register
def _(event: Correlated) -> float | None:
    return 1 / event.mu


@register
@dataclass(frozen=True)
class Shuffled(Event):
    """Made of another event, which it keeps in a field of its own name."""

    message: Event
    clients: int
    relation: Relation = Relation.REPLACE

    def words(self) -> str:
        return f"{self.message.words()}, shuffled among {self.clients}"


@rdp_of.register
def _(event: Shuffled, orders: Array) -> Array:
    return rdp_of(event.message, orders) / event.clients


EVENTS = (PureEvent(0.5), StaircaseEvent(1.0, 0.3), LaplaceBallEvent(2.0, 10), Correlated(0.5))
WITH_PAIR = EVENTS[:2]


def wrapped(event: Event) -> list[Event]:
    sampled = PoissonSampled(0.1, event)
    return [
        event,
        Repeated(event, 7),
        Mixture(0.3, event),
        sampled,
        Composed((Repeated(sampled, 5), Mixture(0.5, event))),
    ]


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_one_registration_prices_it_alone_and_inside_others(event: Event) -> None:
    for outer in (*wrapped(event), Repeated(FixedSizeSampled(0.1, event), 9)):
        found = accountant().epsilon(outer, 1e-6)
        assert 0 < found < math.inf
        assert accountant().delta(outer, found * 1.001) <= 1.01e-6
        assert 0 < accountant().tradeoff(outer, 0.2) <= 0.8
    assert accountant().epsilon(Repeated(PoissonSampled(0.1, event), 50), 1e-6) < accountant().epsilon(
        Repeated(event, 50), 1e-6
    )


@pytest.mark.parametrize("event", [*EVENTS, Shuffled(PureEvent(0.1), 50)], ids=repr)
def test_it_is_written_told_and_part_of_a_ledger(event: Event) -> None:
    for outer in wrapped(event):
        assert from_json(outer.to_json()) == outer
        assert event.words() in outer.words()
        cost = Cost(Relation.ADD_REMOVE, outer, None)
        assert Cost.from_json(cost.to_json()) == cost


def test_what_it_is_made_of_is_read_from_its_fields() -> None:
    assert Shuffled(PureEvent(0.5), 9).parts() == (PureEvent(0.5),)
    assert costs_nothing(Shuffled(Nothing(), 9)) and not costs_nothing(PureEvent(0.5))
    assert accountant().epsilon(Shuffled(NonPrivate("no noise"), 9), 1e-5) == math.inf
    assert why_not_private(Repeated(Shuffled(NonPrivate("no noise"), 9), 2)) == "no noise"
    own = Shuffled(ByClient(PureEvent(0.5), (((3,), PureEvent(0.1)),)), 9)
    assert for_client(own, 3) == Shuffled(PureEvent(0.1), 9) and for_client(own, 1) == Shuffled(PureEvent(0.5), 9)
    mixed = Composed((Shuffled(PureEvent(0.5), 9), PoissonSampled(0.1, GaussianEvent(1.0))))
    with pytest.raises(CannotAccount, match="cannot be summed"):
        accountant().epsilon(mixed, 1e-5)


def test_an_event_that_is_a_gaussian_needs_no_more_than_its_ratio() -> None:
    for name in ("auto", "gdp", "pld", "rdp"):
        for event, same in (
            (Correlated(0.5), GaussianEvent(2.0)),
            (Repeated(Correlated(0.5), 9), Repeated(GaussianEvent(2.0), 9)),
        ):
            assert accountant(name).epsilon(event, 1e-5) == pytest.approx(
                accountant(name).epsilon(same, 1e-5), rel=1e-9
            )
    for sampled in (PoissonSampled, FixedSizeSampled):
        for name in ("pld", "rdp"):
            found, same = (
                accountant(name).epsilon(sampled(0.1, e), 1e-5) for e in (Correlated(0.5), GaussianEvent(2.0))
            )
            assert found == pytest.approx(same, rel=1e-9)


@pytest.mark.parametrize("event", WITH_PAIR, ids=repr)
@pytest.mark.parametrize("rate", [0.05, 0.7])
def test_samples_of_atoms_are_exact(event: Event, rate: float) -> None:
    """One step by hand: ((1-rate) Q + rate P, Q), its reverse, and for a fixed size the larger of both."""
    atoms = pair_of(event)
    assert isinstance(atoms, Atoms)
    p = np.array(atoms.chances)
    q = p * np.exp(-np.array(atoms.values))
    mixed = (1 - rate) * q + rate * p
    for epsilon in (0.0, 0.01, 0.2, 0.4):
        ways = [float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((mixed, q), (q, mixed))]
        found = accountant("pld").delta(PoissonSampled(rate, event), epsilon)
        assert max(ways) * (1 - 1e-12) <= found <= max(ways) * (1 + 1e-9) + 1e-14
        fixed = one_step_delta(pair_of(FixedSizeSampled(rate, event)), epsilon)
        assert max(ways) * (1 - 1e-12) <= fixed <= max(ways) * (1 + 1e-9) + 1e-14


def test_many_samples_of_a_pure_release_are_a_binomial_sum() -> None:
    rate, epsilon, times = 0.2, 0.8, 30
    true = 1 / (1 + math.exp(-epsilon))
    q = np.array([1 - true, true])
    p = (1 - rate) * q + rate * q[::-1]
    for first, second in ((p, q), (q, p)):
        losses = np.log(first / second)
        heads = np.arange(times + 1)
        total = heads * losses[0] + (times - heads) * losses[1]
        chance = np.array([math.comb(times, int(k)) for k in heads]) * first[0] ** heads * first[1] ** (times - heads)
        found = accountant("pld").epsilon(Repeated(PoissonSampled(rate, PureEvent(epsilon)), times), 1e-4)
        assert float((chance * np.maximum(1 - np.exp(found - total), 0)).sum()) <= 1e-4


def test_renyi_of_samples_of_anything() -> None:
    whole = np.arange(2.0, 40.0)
    exact = rdp_poisson_laplace(0.1, 2.0, whole)
    general = [
        rdp_poisson(0.1, lambda orders: rdp_of(LaplaceEvent(2.0), orders), whole, symmetric)
        for symmetric in (True, False)
    ]
    assert general[0] == pytest.approx(exact, rel=1e-12)
    assert np.all(general[1] >= exact)
    for ratio in (1.0, 5.0):
        one, same = PoissonSampled(0.1, LaplaceBallEvent(ratio, 1)), PoissonSampled(0.1, LaplaceEvent(ratio))
        for outer in (Repeated(one, 100), Repeated(FixedSizeSampled(0.1, LaplaceBallEvent(ratio, 1)), 100)):
            plain = (
                Repeated(same, 100) if outer.event is one else Repeated(FixedSizeSampled(0.1, LaplaceEvent(ratio)), 100)
            )
            assert accountant("rdp").epsilon(outer, 1e-5) >= accountant("pld").epsilon(plain, 1e-5)


def test_a_sample_of_a_composition_or_of_a_skewed_pair_is_refused() -> None:
    with pytest.raises(CannotAccount, match="Repeated"):
        accountant().epsilon(PoissonSampled(0.1, Repeated(PureEvent(0.5), 3)), 1e-5)

    @dataclass(frozen=True)
    class Skewed(Event):
        pass

    pair_of.register(Skewed)(lambda event: Atoms((0.5, -0.3), (0.6, 0.4)))
    with pytest.raises(CannotAccount, match="Skewed"):
        accountant("pld").epsilon(FixedSizeSampled(0.1, Skewed()), 1e-5)
