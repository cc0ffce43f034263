"""Clients with settings of their own: each pays for itself, and what holds for all is the largest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from sfumato import (
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    HelperBlend,
    Key,
    Ledger,
    Neighbours,
    PerClient,
    Plan,
    Poisson,
    PublicData,
    Queries,
    RealisedMean,
    Records,
    Round,
    Sgd,
    Unit,
    UnsoundRound,
    Votes,
    accountant,
    calibrate,
    classification,
)  # fmt: skip
from sfumato.account.event import (
    ByClient,
    Composed,
    Event,
    GaussianEvent,
    Mixture,
    NonPrivate,
    PoissonSampled,
    Relation,
    Repeated,
    compose,
    from_json,
    why_not_private,
)  # fmt: skip
from sfumato.account.inside import each_client, for_client
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue, CannotAccount
from sfumato.gradients import OneByOne
from sfumato.ledger.spent import Cost, Costs
from sfumato.local.task import Task
from sfumato.pieces.context import Facts
from sfumato.update import Layout
from tests.helpers import linear, made_up_population

STRICT, USUAL, LAX = (DpSgd(2, FixedSize(3), 8, law=Gaussian(noise)) for noise in (6.0, 3.0, 1.5))
MIXED = PerClient(USUAL, {0: STRICT, 4: LAX, 5: LAX})


def round_of(local: Any, **changed: Any) -> Round:
    slots: dict[str, Any] = {"sample": Poisson(0.7), "aggregate": RealisedMean(), "unit": Unit.RECORD}
    return Round(local=local, **{**slots, **changed})


def last(round: Round, **options: Any) -> Any:
    population = made_up_population([9, 12, 8, 10, 9, 11])
    settings: dict[str, Any] = {"rounds": 3, "seed": 0, "plan": Plan(), **options}
    result = None
    for result in simulate(round, population, linear(), classification(3), **settings):
        pass
    return result


def epsilon(event: Event, delta: float = 1e-5) -> float:
    return accountant("auto").epsilon(event, delta)


def test_each_client_sees_its_own_epsilon_and_all_see_the_largest() -> None:
    progress = last(round_of(MIXED))
    each = [progress.guarantee(1e-5, client=client).epsilon for client in range(6)]
    for client, local in enumerate((STRICT, USUAL, USUAL, USUAL, LAX, LAX)):
        alone = round_of(local).derive(population=6, dimension=5).primary.world
        assert each[client] == pytest.approx(epsilon(Repeated(alone, 3)), rel=1e-9)
    assert progress.epsilon(1e-5) == max(each) == each[4] > each[1] > each[0]
    assert progress.guarantee(1e-5, server=True).epsilon == max(each)
    assert "each record of client 4" in str(progress.guarantee(1e-5, client=4))
    assert "for each record, replace, against" in repr(progress.guarantee(1e-5))
    with pytest.raises(BadValue, match="clients 0 to 5"):
        progress.guarantee(1e-5, client=6)


@pytest.mark.parametrize("plan", [Plan(), Plan("stacked", 4), Plan(workers=2)], ids=["loop", "stacked", "workers"])
def test_each_client_trains_by_its_own_settings(plan: Plan) -> None:
    population = made_up_population([9, 12, 8, 10, 9, 11])
    simulation = simulate(
        round_of(MIXED, sample=Everyone(), personal=HelperBlend(0.0)), population, linear(), classification(3), rounds=1,
        seed=0, plan=plan,
    )  # fmt: skip
    (progress,) = simulation
    start, keys = simulation.start.params, simulation.randomness.keys(0)
    for client, local in enumerate((STRICT, USUAL, USUAL, USUAL, LAX, LAX)):
        own = keys.client(client, round=0)
        task = Task(
            OneByOne(linear()), simulation.job.slots.layout, classification(3).loss, start, start[None],
            [population.client(client).train], [own], 0,
        )  # fmt: skip
        assert torch.allclose(progress.memory[client]["start"], start + local.train(task)[0], atol=1e-6), client


def test_without_numbers_nobody_is_trained_by_the_wrong_settings() -> None:
    module, records = linear(), made_up_population([9]).client(0).train
    layout = Layout.of(module)
    row = layout.row(module)
    task = Task(OneByOne(module), layout, classification(3).loss, row, row[None], [records], [Key.from_seed(0)], 0)
    with pytest.raises(BadValue, match="does not say which clients"):
        MIXED.train(task)


def test_equal_settings_are_no_different() -> None:
    same = PerClient(USUAL, {3: USUAL})
    assert (
        round_of(same).derive(population=6, dimension=5).primary.world
        == round_of(USUAL).derive(population=6, dimension=5).primary.world
    )


def test_nothing_is_said_about_clients() -> None:
    assert Unit.CLIENT in round_of(MIXED).derive(population=6, dimension=5).refused


@pytest.mark.parametrize(
    ("local", "reason"),
    [
        (PerClient(USUAL, {2: replace(USUAL, batch=Poisson(0.3))}), "different things"),
        (PerClient(USUAL, {2: Sgd(lr=0.1, epochs=1)}), "different things"),
    ],
    ids=["relation", "unpaid"],
)
def test_pieces_that_do_not_fit_are_refused(local: PerClient, reason: str) -> None:
    with pytest.raises(UnsoundRound, match=reason):
        round_of(local)


def test_clients_are_named_once_and_are_there() -> None:
    with pytest.raises(BadValue, match="Name each once"):
        PerClient(USUAL, (((1, 2), LAX), ((2,), STRICT)))
    with pytest.raises(BadValue, match="names client 5, but there are 5"):
        round_of(MIXED).derive(population=5, dimension=5)


def test_the_noise_is_found_in_proportion() -> None:
    found = calibrate(round_of(MIXED), epsilon=2.0, delta=1e-5, rounds=10, population=6)
    spent = epsilon(Repeated(found.derive(population=6, dimension=5).primary.world, 10))
    assert 1.998 < spent <= 2.0
    default, strict, lax = (piece.law.noise_multiplier for piece in found.local.pieces)
    assert (strict / default, lax / default) == (pytest.approx(2.0), pytest.approx(0.5))


LOUD, SOFT = GaussianEvent(4.0), GaussianEvent(1.0)


def test_a_client_is_the_same_in_every_round_and_run() -> None:
    first = ByClient(LOUD, (((1,), SOFT),))
    other = ByClient(LOUD, (((2,), SOFT),))
    assert epsilon(Repeated(first, 4)) == epsilon(Repeated(SOFT, 4))
    assert epsilon(compose(first, other)) == pytest.approx(epsilon(Composed((SOFT, LOUD))))
    assert epsilon(compose(first, first)) == epsilon(Repeated(SOFT, 2)) > epsilon(compose(first, other))
    assert each_client(compose(first, other)) == [Repeated(LOUD, 2), Composed((SOFT, LOUD)), Composed((LOUD, SOFT))]


def test_the_largest_is_taken_of_everything_that_is_asked() -> None:
    event = Mixture(0.5, ByClient(PoissonSampled(0.1, LOUD), (((7,), PoissonSampled(0.3, SOFT)),)))
    own, auto = for_client(event, 7), accountant("auto")
    assert own == Mixture(0.5, PoissonSampled(0.3, SOFT))
    for times in (1, 5):
        assert auto.epsilon(Repeated(event, times), 1e-5) == auto.epsilon(Repeated(own, times), 1e-5)
    assert auto.delta(event, 1.0) == auto.delta(own, 1.0) > auto.delta(for_client(event, None), 1.0)
    assert auto.tradeoff(event, 0.1) == auto.tradeoff(own, 0.1) < auto.tradeoff(for_client(event, None), 0.1)
    for name in ("pld", "rdp"):
        with pytest.raises(CannotAccount, match="ByClient"):
            accountant(name).epsilon(event, 1e-5)


def test_the_event_is_kept_and_told() -> None:
    event = Repeated(ByClient(LOUD, (((1, 4), SOFT), ((2,), NonPrivate("no noise")))), 3)
    assert from_json(event.to_json()) == event
    assert why_not_private(event) == "no noise"
    assert "clients 1, 4: Gaussian noise, standard deviation 1 x sensitivity" in event.words()


def test_a_ledger_adds_up_each_client() -> None:
    ledger = Ledger(None, "made-up")
    for number, event in enumerate((ByClient(LOUD, (((1,), SOFT),)), ByClient(LOUD, (((2,), SOFT),)))):
        ledger.reserve(run="run", round=number, costs=Costs({Unit.RECORD: Cost(Relation.REPLACE, event, event)}))
    spent = ledger.spent(Unit.RECORD)
    assert spent is not None
    assert epsilon(spent.world) == pytest.approx(epsilon(Composed((SOFT, LOUD))))


def test_what_a_round_shares_reaches_pieces_of_ones_own() -> None:
    """Votes ask what was prepared; without it every round would ask the first queries, while the student counts others."""
    queries = Queries(PublicData("six", Records(torch.zeros(6, 1), torch.zeros(6))), 2)
    votes = Votes(Neighbours(1), queries, 3)
    facts = Facts(
        Layout.of(linear()), Key.from_seed(0), None, torch.zeros, {**queries.start(), "asked": torch.arange(6, 0, -1)}
    )
    assert PerClient(votes, {1: votes}).prepare(facts).tolist() == [5, 4]
    with pytest.raises(BadValue, match="prepare different things"):
        PerClient(votes, {1: Sgd(lr=0.1, epochs=1)}).prepare(facts)
