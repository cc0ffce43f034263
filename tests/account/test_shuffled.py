"""Shuffled messages: the clones bound against its definition, summed out, and against what randomised bits attain."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from sfumato.account import accountant
from sfumato.account import shuffled as home
from sfumato.account.dominating import pair_of
from sfumato.account.event import (
    Composed,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceBallEvent,
    LaplaceEvent,
    Mixture,
    PoissonSampled,
    PureEvent,
    Relation,
    Repeated,
    StaircaseEvent,
    from_json,
)
from sfumato.account.noises import log_sum
from sfumato.account.pairs import Reversed
from sfumato.account.papers.udp_fl_shuffler import clones_closed_form, lemma_2, lemma_3
from sfumato.account.rdp import ORDERS, rdp_of
from sfumato.account.shuffled import ShuffledEvent, pure_epsilon
from sfumato.account.tail import one_step_delta
from sfumato.errors import BadValue, CannotAccount
from tests.account import laws

PLD, RDP = accountant("pld"), accountant("rdp")


def twin(epsilon: float, count: int) -> list[tuple[Any, Any]]:
    """Every outcome of the pair with its two chances, by the definition, in forty digits: O(count^2)."""
    mpmath.mp.dps = 40
    chance, true = mpmath.exp(-mpmath.mpf(epsilon)), 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
    found: dict[tuple[int, int], list[Any]] = {}
    for clones in range(count):
        often = mpmath.binomial(count - 1, clones) * chance**clones * (1 - chance) ** (count - 1 - clones)
        for heads in range(clones + 1):
            each = often * mpmath.binomial(clones, heads) / mpmath.mpf(2) ** clones
            for mine, share in ((1, true), (0, 1 - true)):
                found.setdefault((heads + mine, clones), [0, 0])[0] += each * share
                found.setdefault((heads + 1 - mine, clones), [0, 0])[1] += each * share
    return [(p, q) for p, q in found.values()]


def exact_delta(outcomes: list[tuple[Any, Any]], epsilon: float) -> Any:
    factor = mpmath.exp(mpmath.mpf(epsilon))
    return mpmath.fsum(max(p - factor * q, mpmath.mpf(0)) for p, q in outcomes)


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 1), (1.0, 2), (0.1, 7), (3.0, 30), (1.0, 60), (8.0, 40)])
def test_it_is_the_sum_over_all_outcomes_and_never_below_it(epsilon: float, count: int) -> None:
    outcomes = twin(epsilon, count)
    assert abs(mpmath.fsum(p for p, _ in outcomes) - 1) < 1e-30
    event = ShuffledEvent(epsilon, count)
    for share in (0.0, 0.01, 0.2, 0.5, 0.9, 0.999):
        exact, found = exact_delta(outcomes, share * epsilon), PLD.delta(event, share * epsilon)
        assert exact <= found <= exact * (1 + mpmath.mpf("1e-9")) + mpmath.mpf("1e-41"), share
        backwards = exact_delta([(q, p) for p, q in outcomes], share * epsilon)
        assert abs(backwards - exact) <= exact * mpmath.mpf("1e-30")
    assert PLD.delta(event, epsilon) <= 1e-11 * epsilon and PLD.delta(event, epsilon * (1 + 1e-9)) == 0.0


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 10), (0.3, 25), (4.0, 40)])
def test_renyi_divergences_are_those_of_the_pair_from_above(epsilon: float, count: int) -> None:
    outcomes = twin(epsilon, count)
    orders = np.array([1.25, 2.0, 8.0, 60.0])
    for order, found in zip(orders, rdp_of(ShuffledEvent(epsilon, count), orders), strict=True):
        moment = mpmath.fsum(p ** mpmath.mpf(order) * q ** (1 - mpmath.mpf(order)) for p, q in outcomes)
        exact = float(mpmath.log(moment) / (order - 1))
        assert exact <= found * (1 + 1e-12) and found <= exact * (1 + 2e-6) + 1e-12


def by_tails(epsilon: float, count: int, at: float) -> float:
    """delta in O(count), for many messages: given the clones, beyond an epsilon lies a tail of the first count."""
    chance, true = math.exp(-epsilon), 1 / (1 + math.exp(-epsilon))
    clones = np.arange(binom.ppf(1e-18, count - 1, chance), binom.isf(1e-18, count - 1, chance) + 1)
    more, less = true - math.exp(at) * (1 - true), math.exp(at) * true - (1 - true)
    first = np.floor((clones + 1) * less / (more + less))
    tails = more * binom.sf(first - 1, clones, 0.5) - less * binom.sf(first, clones, 0.5)
    return float(binom.pmf(clones, count - 1, chance) @ np.maximum(tails, 0.0))


@pytest.mark.parametrize(("epsilon", "count", "at"), [(1.0, 10_000, 0.05), (1.0, 300_000, 0.008), (4.0, 100_000, 0.15)])
def test_many_messages_cost_what_the_tails_say(epsilon: float, count: int, at: float) -> None:
    exact, found = by_tails(epsilon, count, at), PLD.delta(ShuffledEvent(epsilon, count), at)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 2e-3)  # 300,000: clones rounded down by 3 in 100,000


def test_published_and_verified_values() -> None:
    found = [accountant().epsilon(ShuffledEvent(1.0, count), 1e-6) for count in (10, 100, 1_000, 10_000)]
    assert [round(value, 3) for value in found] == [1.0, 0.644, 0.182, 0.053]
    for epsilon, expected in ((0.5, 0.0705), (1.0, 0.1824), (2.0, 0.5455)):
        assert round(accountant().epsilon(ShuffledEvent(epsilon, 1000), 1e-6), 4) == expected
    for count, epsilon, delta, expected in (
        (10, 1.0, 1e-5, 0.9999147751646159),
        (100, 1.0, 1e-5, 0.5531898110598344),
        (1000, 2.0, 1e-6, 0.5454979655097512),
    ):
        price = accountant().epsilon(ShuffledEvent(epsilon, count), delta)
        assert expected - 1e-13 <= price <= expected + 1e-6
    for count, order, expected in (
        (100, 8, 0.09388454195634274),
        (1000, 2, 0.00232333504410498),
        (1000, 8, 0.009293765034403252),
    ):
        assert rdp_of(ShuffledEvent(1.0, count), np.array([float(order)]))[0] == pytest.approx(expected, abs=1e-8)
    local = 1.263079285740715  # which of all costs 0.5 at 300 messages and delta 1e-6
    assert accountant().epsilon(ShuffledEvent(local, 300), 1e-6) == pytest.approx(0.5, abs=1e-4)


def test_more_messages_and_more_private_ones_cost_less() -> None:
    for times in (1, 20):
        by_count = [PLD.epsilon(Repeated(ShuffledEvent(1.0, n), times), 1e-6) for n in (1, 2, 10, 100, 1000, 20_000)]
        assert all(less <= more * (1 + 1e-4) for more, less in pairwise(by_count))
        by_epsilon = [PLD.epsilon(Repeated(ShuffledEvent(e, 200), times), 1e-6) for e in (0.1, 0.5, 1.0, 2.0, 6.0)]
        assert all(less < more for less, more in pairwise(by_epsilon))
    assert PLD.epsilon(ShuffledEvent(1.0, 1), 1e-9) == pytest.approx(PLD.epsilon(PureEvent(1.0), 1e-9), rel=1e-9)
    assert PLD.epsilon(ShuffledEvent(1.0, 1000), 1e-60) == pytest.approx(1.0)  # no delta is too small


EVENTS = (ShuffledEvent(1.0, 60), Mixture(0.3, ShuffledEvent(2.0, 300)))


@pytest.mark.parametrize("price", [PLD, RDP], ids=["pld", "rdp"])
def test_it_composes_like_everything_else(price: Any) -> None:
    laws.repeating_is_composing(price, EVENTS)
    laws.more_rounds_cost_more(price, EVENTS)
    laws.epsilon_and_delta_are_inverse(price, EVENTS)
    laws.a_trade_off_is_a_trade_off(price, EVENTS)
    for event in EVENTS:
        many = Repeated(event, 30)
        assert RDP.epsilon(many, 1e-5) >= PLD.epsilon(many, 1e-5) * (1 - 1e-4)


def test_three_rounds_are_three_sums() -> None:
    """Composition against the definition: all triples of outcomes."""
    outcomes = [(float(p), float(q)) for p, q in twin(1.0, 8)]
    p, q = np.array(outcomes).T
    losses, chances = np.log(p / q), p
    for _ in range(2):
        losses = np.add.outer(losses, np.log(p / q)).ravel()
        chances = np.multiply.outer(chances, p).ravel()
    exact = float(chances @ np.maximum(-np.expm1(1.2 - losses), 0.0))
    assert exact <= PLD.delta(Repeated(ShuffledEvent(1.0, 8), 3), 1.2) * (1 + 1e-9) <= exact * (1 + 1e-3)


def bits(epsilon: float, count: int, ones: int) -> np.ndarray:
    """How many of `count` shuffled randomised bits come out as 1, if so many were."""
    true = 1 / (1 + math.exp(-epsilon))
    numbers = np.arange(count + 1)
    return np.convolve(binom.pmf(numbers, ones, true), binom.pmf(numbers, count - ones, 1 - true))[: count + 1]


@pytest.mark.parametrize(("epsilon", "count"), [(0.5, 10), (1.0, 10), (2.0, 50), (1.0, 100), (3.0, 200)])
def test_randomised_bits_never_cost_more_than_the_bound(epsilon: float, count: int) -> None:
    event = ShuffledEvent(epsilon, count)
    for others in {0, 1, count // 2, count - 1}:
        p, q = bits(epsilon, count, others + 1), bits(epsilon, count, others)
        for share in (0.0, 0.1, 0.4, 0.8):
            for one, two in ((p, q), (q, p)):
                attained = float(np.maximum(one - math.exp(share * epsilon) * two, 0.0).sum())
                assert attained <= PLD.delta(event, share * epsilon) + 1e-15
        for order in (2, 10, 50):
            assert max(divergence(p, q, order), divergence(q, p, order)) <= rdp_of(event, np.array([float(order)]))[
                0
            ] * (1 + 1e-9)


def divergence(p: np.ndarray, q: np.ndarray, order: int) -> float:
    """The Renyi divergence of two laws whose chances are all positive."""
    return float(log_sum(order * np.log(p) + (1 - order) * np.log(q))) / (order - 1)


def test_the_papers_lemma_is_below_what_randomised_bits_attain() -> None:
    for epsilon, count, order, attained, printed in (
        (1, 10, 10, 0.657, 0.4435), (2, 50, 10, 1.296, 0.555), (1, 100, 50, 0.404, 0.102),
    ):  # fmt: skip
        none, one = bits(epsilon, count, 0), bits(epsilon, count, 1)
        found = max(divergence(none, one, order), divergence(one, none, order))
        assert (found, lemma_2(epsilon, count, order)) == (
            pytest.approx(attained, abs=5e-4),
            pytest.approx(printed, abs=5e-4),
        )
        assert (
            lemma_2(epsilon, count, order) < found <= rdp_of(ShuffledEvent(epsilon, count), np.array([float(order)]))[0]
        )
        assert lemma_3(epsilon, count, order) <= found
    with pytest.raises(BadValue, match="whole order"):
        lemma_2(1.0, 10, 1)


def test_the_closed_form_is_looser_and_refuses_where_it_is_not_proven() -> None:
    assert clones_closed_form(0.5, 1000, 1e-6) == pytest.approx(0.2726376092004103, abs=1e-10)
    assert clones_closed_form(0.5, 1000, 1e-6) > accountant().epsilon(ShuffledEvent(0.5, 1000), 1e-6)
    with pytest.raises(CannotAccount, match="needs no condition"):
        clones_closed_form(2.0, 100, 1e-6)


def test_which_messages_are_pure() -> None:
    assert pure_epsilon(LaplaceEvent(2.0)) == pytest.approx(0.5) and pure_epsilon(PureEvent(0.7)) == 0.7
    assert pure_epsilon(StaircaseEvent(0.7, 0.3)) == 0.7 and pure_epsilon(LaplaceBallEvent(4.0, 100)) == pytest.approx(
        2.5
    )
    for other in (GaussianEvent(9.0), Repeated(LaplaceEvent(2.0), 3), PoissonSampled(0.1, LaplaceEvent(2.0))):
        assert pure_epsilon(other) is None


def test_it_is_written_told_and_refused() -> None:
    event = Repeated(Mixture(0.5, ShuffledEvent(1.0, 1000)), 3)
    assert from_json(json.loads(json.dumps(event.to_json()))) == event
    assert event.words() == "composed 3 times (with probability 0.5: a 1-private message shuffled among 1,000)"
    for wrong in ((0.0, 5), (math.inf, 5), (1.0, 0), (1.0, True)):
        with pytest.raises(BadValue):
            ShuffledEvent(*wrong)
    for price in (PLD, RDP):
        with pytest.raises(CannotAccount):
            price.epsilon(PoissonSampled(0.1, ShuffledEvent(1.0, 100)), 1e-6)
        with pytest.raises(CannotAccount):
            price.epsilon(PoissonSampled(0.1, ShuffledEvent(1.0, 100), Relation.REPLACE), 1e-6)
    drawn = FixedSizeSampled(0.1, ShuffledEvent(1.0, 100))
    assert PLD.epsilon(drawn, 1e-6) < PLD.epsilon(ShuffledEvent(1.0, 100), 1e-6)
    assert PLD.epsilon(Composed((ShuffledEvent(1.0, 100), GaussianEvent(5.0))), 1e-6) > 0.6


def test_what_holds_under_another_relation_is_not_added_to_it() -> None:
    shuffled = ShuffledEvent(1.0, 1000)
    for other in (PoissonSampled(0.1, GaussianEvent(1.0)), FixedSizeSampled(1.0, shuffled, Relation.ADD_REMOVE)):
        for name in ("auto", "pld", "rdp"):
            with pytest.raises(CannotAccount, match="cannot be summed"):
                accountant(name).epsilon(Composed((shuffled, other)), 1e-5)


def test_extremes() -> None:
    with pytest.raises(CannotAccount, match="hides nothing"):
        accountant().epsilon(Repeated(ShuffledEvent(1000.0, 10), 5), 1e-5)
    for epsilon, count in ((1e-9, 10**6), (700.0, 10**6), (1e-3, 10**9), (1.0, 10**9), (40.0, 3)):
        found = PLD.epsilon(ShuffledEvent(epsilon, count), 1e-8)
        assert 0.0 <= found <= epsilon * (1 + 1e-6)
        curve = rdp_of(ShuffledEvent(epsilon, count), ORDERS)
        assert np.isfinite(curve).all() and (curve <= epsilon * (1 + 2e-6)).all()


def test_a_pair_and_its_reverse_are_the_same() -> None:
    pair = pair_of(ShuffledEvent(1.5, 40))
    for epsilon in (0.0, 0.3, 1.2):
        assert one_step_delta(Reversed(pair), epsilon) == pytest.approx(one_step_delta(pair, epsilon), rel=1e-9)


@pytest.mark.parametrize("mistake", ["one more message", "stronger clones", "half the epsilon"])
def test_a_mistake_in_the_pair_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message counted twice; C ~ Bin(n - 1, 2 / (e^epsilon + 1)), which has an erratum; the victim's own noise mistaken."""
    right = home._clones, home._atoms.__wrapped__

    def clones(chance: float, others: int) -> Any:
        better = 2 / (1 / chance + 1) if mistake == "stronger clones" else chance
        return right[0](better, others + (mistake == "one more message"))

    def atoms(epsilon: float, count: int) -> Any:
        return right[1](epsilon / 2 if mistake == "half the epsilon" else epsilon, count)

    monkeypatch.setattr(home, "_clones", clones)
    monkeypatch.setattr(home, "_atoms", atoms)
    with pytest.raises(AssertionError):
        test_it_is_the_sum_over_all_outcomes_and_never_below_it(3.0, 30)
