"""What a node records of a run is never less than what the server's own ledger holds of it, as far as the node has heard."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato import AddNoise, Clip, DpSgd, Everyone, Gaussian, NoiseShare, Poisson, RealisedMean, SecureSum
from sfumato.account.adaptive import AtOrder, order_for
from sfumato.account.event import Event, GaussianEvent, Nothing, PoissonSampled, Relation, Repeated, Unit, compose
from sfumato.data.population import PublicData, Records
from sfumato.federation.node.asked import Asked
from sfumato.federation.node.books import Books
from sfumato.federation.node.costs import Dues, Heard, part_of
from sfumato.federation.node.rules import Refused
from sfumato.federation.terms import Agreement
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.pieces.presence import PoissonPerClient, Presence
from tests.federation.node.helpers import question_of, terms_of
from tests.helpers import dp_round, made_up_population


@cache
def plain() -> Asked:
    terms = terms_of(rounds=1)
    agreement = Agreement.of(terms)
    return Asked(question_of(terms), agreement, Dues.of(agreement, 1))


def empty_books() -> Books:
    return Books(Ledger(None, "set", "set"), Ledger(None, "all", "all"), "set")


def asked_in(
    rounds: int, number: int, attempt: int, planned: int, every: int, until: int | None, since: int = 0
) -> Asked:
    """A question of a run whose events are due once in `every` rounds, up to round `until`."""
    one = plain()
    proof = replace(one.dues.promised[Unit.CLIENT], every=every, until=until, swapped=None)
    opening = replace(one.question.opening, number=number)
    question = replace(one.question, opening=opening, attempt=attempt, planned=planned, since=since)
    agreement = replace(one.agreement, terms=replace(one.agreement.terms, rounds=rounds))
    return Asked(question, agreement, replace(one.dues, promised={Unit.CLIENT: proof}, rounds=rounds))


def count_of(event: Event) -> int:
    """How many events of one round there are in a sum of them."""
    return 0 if isinstance(event, Nothing) else event.times if isinstance(event, Repeated) else 1


def recorded(books: Books) -> int:
    found = [books.own.spent(Unit.CLIENT), books.total.spent(Unit.CLIENT)]
    counts = {0 if cost is None else count_of(compose(cost.world)) for cost in found}
    assert len(counts) == 1, "both ledgers say the same"
    return counts.pop()


class Server:
    """An honest server's ledger, round by round: an entry for every round that it reserved, and when it was last started."""

    def __init__(self, rounds: int, every: int, until: int | None) -> None:
        self.rounds, self.every, self.until = rounds, every, until
        self.number, self.attempt, self.since = 0, 0, 0
        self.entries: list[tuple[int, int]] = []

    def reserve(self) -> None:
        self.entries.append((self.number, self.since))

    def resume(self) -> None:
        self.since = self.number

    def ask(self, drop_plan: bool = False) -> Asked:
        planned = len(self.entries) + self.rounds - self.number - 1
        planned = 0 if drop_plan else planned
        return asked_in(self.rounds, self.number, self.attempt, planned, self.every, self.until, self.since)

    def events(self, to_the_end: bool = False) -> int:
        """By brute force: what `UnitDerivation.at` makes due for each entry."""
        proof = self.ask().dues.promised[Unit.CLIENT]
        later = [(number, self.since) for number in range(self.number + 1, self.rounds)] if to_the_end else []
        every = [*self.entries, *later]
        return sum(not isinstance(proof.at(number, since=since), Nothing) for number, since in every)


STEPS = st.lists(st.sampled_from(["drawn", "not drawn", "resumed", "killed", "killed, drawn", "longer"]), max_size=25)


@given(STEPS, st.integers(1, 6), st.sampled_from([1, 1, 2, 3]), st.one_of(st.none(), st.integers(1, 5)))
def test_a_promise_covers_the_servers_ledger(steps: list[str], rounds: int, every: int, until: int | None) -> None:
    books, server = empty_books(), Server(rounds, every, until)
    for step in steps:
        if server.number >= server.rounds:
            if step != "longer":
                continue
            server.rounds += 2
            server.resume()
        if step == "resumed":
            server.resume()
        server.reserve()
        if "drawn" in step and step != "not drawn":
            asked = server.ask()
            books.promise(asked.dues, "run", asked.told(0), "terms", seeded=False)
            assert recorded(books) >= server.events(to_the_end=True)
        if "killed" in step:
            server.attempt += 1  # the round is begun again, with other noise
            server.resume()
        else:
            server.number += 1
    if server.entries:
        server.number = max(0, server.number - 1)
        asked = server.ask()
        books.promise_most(asked.dues, "run", asked.told(0), server.rounds, "terms", seeded=False)
        assert recorded(books) >= server.events()
    if not any("killed" in step for step in steps) and (every == 1 or not server.since) and recorded(books):
        alone = Server(server.rounds, every, until)
        assert recorded(books) == alone.ask().dues.promised[Unit.CLIENT].times(
            server.rounds if until is None else min(until, server.rounds)
        )  # and not one more than is due


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3), st.integers(-5, 12)), max_size=20), st.integers(1, 6))
def test_a_server_that_says_too_little_still_pays_for_what_it_asks(
    asks: list[tuple[int, int, int]], rounds: int
) -> None:
    """Whatever it says of its plan, a node records a round for each different question, and each attempt begins one again."""
    books = empty_books()
    different: set[tuple[int, int]] = set()
    for number, attempt, planned in asks:
        different.add((number, attempt))
        asked = asked_in(rounds, number, attempt, planned, 1, None)
        books.promise(asked.dues, "run", asked.told(len(different)), "terms", seeded=False)
        least = max(one + 1 + tried for one, tried in different)
        assert recorded(books) >= max(least, len(different), rounds, planned)


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 40), st.booleans())
def test_what_is_heard_at_the_end_goes_as_far_as_the_budget(
    rounds: int, more: int, affordable: int, begun: bool
) -> None:
    """By brute force: the most rounds that the budget suffices for, or nothing where it does not suffice for the run."""
    books = empty_books()
    event = PoissonSampled(0.5, GaussianEvent(1.0))
    budget = Budget(1.0, 1e-5)
    price = AtOrder(order_for(Repeated(event, rounds), budget.delta))
    limit = budget.spent(Repeated(event, affordable), by=price)
    books.own.set_budget(replace(budget, epsilon=limit))
    asked = asked_in(rounds, 0, 0, rounds + more, 1, None)
    assert asked.dues.promised[Unit.CLIENT].world == event
    if begun and rounds <= affordable:
        books.promise(asked.dues, "run", Heard(rounds), "terms", seeded=False)
    elif begun:
        with pytest.raises(Refused, match="refused.epsilon"):
            books.promise(asked.dues, "run", Heard(rounds), "terms", seeded=False)
        assert recorded(books) == 0
    books.promise_most(asked.dues, "run", asked.told(0), rounds, "terms", seeded=False)
    assert recorded(books) == (min(rounds + more, affordable) if rounds <= affordable else 0)


def dues_of(recipe: str, **changed: Any) -> Dues:
    return Dues.of(Agreement.of(terms_of(recipe, **changed)), 1)


def test_noise_at_the_server_is_promised_for_both_units() -> None:
    dues = dues_of("dp-fedavg", rounds=7)
    assert set(dues.promised) == {Unit.CLIENT, Unit.RECORD} and not dues.own
    costs = dues.of_promise(Heard(), Heard(7))
    assert costs.by_unit[Unit.CLIENT].world == Repeated(PoissonSampled(0.5, GaussianEvent(1.0)), 7)
    assert costs.by_unit[Unit.CLIENT].server is None
    swapped = costs.by_unit[Unit.CLIENT].swapped
    assert swapped is not None and swapped.relation is Relation.REPLACE
    assert dues.of_promise(Heard(7), Heard(8, True)).by_unit[Unit.CLIENT].world == PoissonSampled(
        0.5, GaussianEvent(1.0)
    )


def test_noise_at_the_client_is_paid_for_by_each_answer_and_never_amplified() -> None:
    dues = dues_of("perturb-model", options={"noise_multiplier": 3.0})
    assert set(dues.own) == {Unit.CLIENT, Unit.RECORD} and not dues.promised
    for cost in dues.of_one_answer().by_unit.values():
        assert cost.world == cost.server == GaussianEvent(1.5)  # twice the norm: it is replaced; not at rate 0.5


def test_local_steps_pay_for_records_and_nothing_is_proven_for_clients() -> None:
    dues = dues_of("prifedsync", options={"records": 5, "batch": "poisson:0.5", "steps": 4})
    assert dues.units == {Unit.RECORD}
    (cost,) = dues.of_one_answer().by_unit.values()
    assert isinstance(cost.world, Repeated) and cost.world.times == 4 and cost.world == cost.server


def test_local_steps_under_a_servers_noise_are_both() -> None:
    """A promise says nothing of what an answer pays for, and an answer nothing of what is promised."""
    round = dp_round(local=DpSgd(2, Poisson(0.5), 5, 1.0, Gaussian(1.0)))
    dues = Dues.of(Agreement.of(terms_of(round=round)), 1)
    assert set(dues.own) == {Unit.RECORD} and set(dues.promised) == {Unit.CLIENT}
    books = empty_books()
    books.promise(dues, "run", Heard(3), "terms", seeded=False)
    for key in ("a", "b"):
        books.answer(dues, "run", 0, 0, key, seeded=False)
    client, record = books.own.spent(Unit.CLIENT), books.own.spent(Unit.RECORD)
    assert client is not None and record is not None
    one = dues.own[Unit.RECORD].chooser
    assert client.world == Repeated(PoissonSampled(0.5, GaussianEvent(1.0)), 3) and client.server is None
    assert isinstance(one, Repeated) and record.world == record.server == replace(one, times=2 * one.times)


def test_shares_are_own_only_in_a_sum_that_was_agreed_on() -> None:
    client = (Clip(1.0), NoiseShare(Gaussian(1.0), 3))
    round = dp_round(client=client, sample=Everyone(Relation.REPLACE), server=())
    one_share = Dues.of(Agreement.of(terms_of(round=round)), 1)
    alone = one_share.of_one_answer().by_unit[Unit.CLIENT].world
    assert isinstance(alone, GaussianEvent) and alone.ratio == pytest.approx(0.5 / 3**0.5)
    summed = replace(round, channel=SecureSum())
    assert not Dues.of(Agreement.of(terms_of(round=summed)), 1).own
    agreed = Dues.of(Agreement.of(terms_of(round=summed, sum={"threshold": 3})), 1)
    assert not agreed.promised
    assert agreed.of_one_answer().by_unit[Unit.CLIENT].world == GaussianEvent(0.5)


def test_a_client_with_settings_of_its_own_pays_its_own_price() -> None:
    sample = PoissonPerClient(Presence(0.5), {1: Presence(0.1, rounds=2), 2: Presence(0.25)})
    agreement = Agreement.of(terms_of(round=dp_round(sample=sample)))
    found = {}
    for client in range(3):
        dues = Dues.of(agreement, client)
        found[client] = dues.of_promise(Heard(), Heard(5)).by_unit[Unit.CLIENT].world
        assert part_of(dues.promised[Unit.CLIENT], client).world in found[client].walk()
    assert found == {
        0: Repeated(PoissonSampled(0.5, GaussianEvent(1.0)), 5),
        1: Repeated(PoissonSampled(0.1, GaussianEvent(1.0)), 2),
        2: Repeated(PoissonSampled(0.25, GaussianEvent(1.0)), 5),
    }


def test_votes_are_promised() -> None:
    people = made_up_population([9])
    public = PublicData("asked", Records(*people.client(0).train))
    terms = terms_of("pate-fl", public=public, options={"queries": 4, "classes": 3})
    assert set(Dues.of(Agreement.of(terms, public), 1).promised) == {Unit.CLIENT, Unit.RECORD}


def test_what_is_noised_twice_is_own_where_the_message_is() -> None:
    client = (Clip(1.0), AddNoise(Gaussian(2.0)))
    round = dp_round(client=client, sample=Everyone(Relation.REPLACE), aggregate=RealisedMean(), server=())
    assert not Dues.of(Agreement.of(terms_of(round=round)), 1).promised
