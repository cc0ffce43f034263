"""A ledger's basis, stated with its first reservation for good: a plan that is priced as a whole, or one Renyi order."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato import classification, simulate
from sfumato.account import accountant
from sfumato.account.adaptive import AtOrder, order_for
from sfumato.account.event import (
    CappedPoissonSampled,
    Event,
    GaussianEvent,
    NonPrivate,
    PoissonSampled,
    Relation,
    Repeated,
    Unit,
    compose,
)
from sfumato.account.gdp import gdp_epsilon
from sfumato.cli import run
from sfumato.engine.simulate import simulate as engine
from sfumato.errors import BudgetExceeded, CannotAccount, LedgerError
from sfumato.ledger.basis import EXCEEDED, FROM_RELEASES, AdaptiveBasis, PlanBasis, adaptive_for
from sfumato.ledger.chain import Chain
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.ledger.spent import Cost, Costs
from sfumato.run.several import store_plan
from tests.account.policies import Step, attained
from tests.helpers import dp_round, linear, made_up_population

DELTA = 1e-5
POISSON, EVERYONE = PoissonSampled(0.05, GaussianEvent(1.0)), GaussianEvent(5.0)


def costs(event: Event) -> Costs:
    return Costs({Unit.CLIENT: Cost(Relation.ADD_REMOVE, event, None)})


def ledger_with(*events: Event, basis: Any = None, path: Path | None = None) -> Ledger:
    ledger = Ledger(path, "people", "who they are")
    for number, event in enumerate(events):
        ledger.reserve(run="a", round=number, costs=costs(event), basis=basis)
    return ledger


def trained(folder: Path | None = None, rounds: int = 3, stop: int | None = None, **changed: Any) -> Any:
    """A run that was left after `stop` rounds."""
    if "checkpoint_every" in changed:
        simulation = engine(
            dp_round(),
            made_up_population([6] * 20),
            linear(),
            classification(3),
            rounds=rounds,
            folder=folder,
            **changed,
        )
        list(simulation)
        return simulation
    ready = simulate(
        dp_round(),
        made_up_population([6] * 20),
        linear(),
        classification(3),
        rounds=rounds,
        folder=folder,
        delta=1e-3,
        **changed,
    )
    for progress in ready:
        if progress.round == stop:
            break
    return ready


def test_a_plan_costs_all_of_it_whatever_happens_of_it() -> None:
    plan = PlanBasis(((costs(POISSON), 200), (costs(EVERYONE), 10)))
    whole = accountant().epsilon(compose(Repeated(POISSON, 200), Repeated(EVERYONE, 10)), DELTA)
    for happened in ([POISSON], [EVERYONE] * 10, [POISSON, EVERYONE, POISSON]):
        ledger = ledger_with(*happened, basis=plan)
        spent = ledger.spent(Unit.CLIENT)
        assert spent is not None and ledger.price.epsilon(spent.world, DELTA) == whole
        assert ledger.assumptions == () and ledger.basis == plan


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([POISSON, EVERYONE, GaussianEvent(9.0)]), min_size=1, max_size=8), st.data())
def test_a_plan_that_is_exceeded_never_lacks_the_assumption(happened: list[Event], data: st.DataObject) -> None:
    kinds = sorted(set(happened), key=repr)
    planned = {event: data.draw(st.integers(0, 4)) for event in kinds}
    plan = PlanBasis(tuple((costs(event), times) for event, times in planned.items() if times))
    ledger = ledger_with(*happened, basis=plan)
    exceeded = any(happened.count(event) > planned[event] for event in kinds)
    assert (EXCEEDED in ledger.assumptions) == exceeded
    most = compose(*(Repeated(event, max(planned[event], happened.count(event))) for event in kinds))
    spent = ledger.spent(Unit.CLIENT)
    assert spent is not None
    assert ledger.price.epsilon(spent.world, DELTA) == pytest.approx(accountant().epsilon(most, DELTA), rel=1e-3)


def test_a_basis_is_stated_with_the_first_reservation_and_never_changes(tmp_path: Path) -> None:
    first, other = AdaptiveBasis(7.5), PlanBasis(((costs(POISSON), 9),))
    ledger = ledger_with(POISSON, basis=first, path=tmp_path / "l.sqlite")
    assert ledger.begin(other) == first == Ledger(tmp_path / "l.sqlite", None).basis
    ledger.reserve(run="b", round=0, costs=costs(EVERYONE), basis=other)
    ledger.settle("a", ledger.entries()[0].number)
    assert ledger.basis == first and not ledger.damage()
    for basis in (AdaptiveBasis(2.0), other):
        changed = ledger_with(POISSON, basis=first)
        changed.settle("a", changed.entries()[0].number)
        changed.set_fact("basis", basis.written())
        assert any("basis" in line for line in changed.damage())


def test_an_adaptive_ledger_adds_up_at_its_order() -> None:
    basis = adaptive_for([(costs(POISSON), 200)], Unit.CLIENT, DELTA)
    assert basis == AdaptiveBasis(order_for(Repeated(POISSON, 200), DELTA))
    ledger = ledger_with(POISSON, POISSON, EVERYONE, basis=basis)
    assert ledger.price == AtOrder(basis.order) and ledger.assumptions == (FROM_RELEASES,)
    spent = ledger.spent(Unit.CLIENT)
    assert spent is not None and spent.world == compose(POISSON, POISSON, EVERYONE)


def test_an_event_without_a_bound_is_refused_before_it_is_reserved() -> None:
    unbounded = CappedPoissonSampled(0.05, 60, 1000, GaussianEvent(1.0), Relation.REPLACE)
    ledger = ledger_with(POISSON, basis=AdaptiveBasis(4.0))
    with pytest.raises(CannotAccount, match="CappedPoissonSampled"):
        ledger.reserve(run="a", round=1, costs=costs(unbounded))
    assert ledger.count == 1
    ledger.reserve(run="a", round=1, costs=costs(NonPrivate("by force")))  # its guarantee says that nothing is proven
    assert ledger.count == 2


def test_a_ledger_of_an_earlier_version_is_an_empty_plan() -> None:
    ledger = Ledger(None, "people", "who they are")
    with ledger._writing() as connection:
        Chain(connection).reserve(run="a", round=0, attempt=0, seeded=False, costs=costs(POISSON), name=None)
    assert ledger.basis == PlanBasis() and ledger.assumptions == (EXCEEDED,) and ledger.price == accountant()
    ledger.reserve(run="a", round=1, costs=costs(POISSON), basis=AdaptiveBasis(4.0))
    assert ledger.basis == PlanBasis() and ledger.assumptions == (EXCEEDED,)


def test_a_plan_is_stated_again_only_before_the_first_output(tmp_path: Path) -> None:
    plan, wider = PlanBasis(((costs(POISSON), 2),)), PlanBasis(((costs(POISSON), 3),))
    ledger = ledger_with(POISSON, basis=plan)
    assert not ledger.restate(PlanBasis(((costs(POISSON), 4),)))  # more rounds than before
    assert ledger.restate(wider)  # the first reservation was interrupted
    assert ledger.basis == wider and not ledger.damage()
    assert not ledger.restate(PlanBasis(((costs(POISSON), 4),)))  # nothing was reserved since
    for shown in (lambda: ledger.note_shown(), lambda: ledger.settle("a", ledger.entries()[0].number)):
        shown()
        assert not ledger.restate(plan)
    assert ledger.basis == wider and not ledger.damage()
    assert not ledger_with(POISSON, basis=AdaptiveBasis(4.0)).is_open_plan
    ready = trained(tmp_path / "run", rounds=4, checkpoint_every=4)
    assert ready.ledger.fact("shown") is not None and trained(rounds=4).ledger.fact("shown") is None


# Runs


def test_a_run_that_is_left_early_costs_its_plan(tmp_path: Path) -> None:
    left = trained(tmp_path / "run", rounds=6, stop=2)
    left.finish()
    whole = accountant().epsilon(left.derivation.primary.after(6), 1e-3)
    proven = left.guarantee()
    assert proven.epsilon == whole == trained(rounds=6).guarantee().epsilon and EXCEEDED not in proven.assumptions
    assert json.loads((tmp_path / "run" / "run.json").read_text())["epsilon"] == whole


def test_more_rounds_than_planned_are_priced_and_assumed_to_be_no_choice(tmp_path: Path) -> None:
    trained(tmp_path / "run", rounds=2)
    longer = trained(tmp_path / "run", rounds=5, resume=True)
    proven = longer.guarantee()
    assert proven.epsilon == accountant().epsilon(longer.derivation.primary.after(5), 1e-3)
    assert EXCEEDED in proven.assumptions


def test_most_rounds_leave_room_and_cost(tmp_path: Path) -> None:
    first = trained(tmp_path / "run", rounds=2, most_rounds=5)
    whole = accountant().epsilon(first.derivation.primary.after(5), 1e-3)
    longer = trained(tmp_path / "run", rounds=5, resume=True)
    assert first.guarantee().epsilon == longer.guarantee().epsilon == whole
    assert EXCEEDED not in longer.guarantee().assumptions


def test_an_adaptive_run_may_be_extended_by_looking(tmp_path: Path) -> None:
    first = trained(tmp_path / "run", rounds=2, adaptive=True)
    (basis,) = {first.ledger.basis}
    assert isinstance(basis, AdaptiveBasis) and basis.order == order_for(first.derivation.primary.after(2), 1e-3)
    longer = trained(tmp_path / "run", rounds=5, resume=True)
    assert longer.ledger.basis == basis
    proven = longer.guarantee()
    assert proven.epsilon == AtOrder(basis.order).epsilon(longer.derivation.primary.after(5), 1e-3)
    assert FROM_RELEASES in proven.assumptions and EXCEEDED not in proven.assumptions


def test_runs_in_a_shared_ledger_have_its_order_and_its_rule_for_noise(tmp_path: Path) -> None:
    shared = tmp_path / "shared.sqlite"
    words = ["--clients", "40", "--rounds", "4", "--epsilon", "3", "--quiet", "--ledger", str(shared)]
    for name in ("a", "b"):
        assert run(["train", *words, "--out", str(tmp_path / name)]) == 0
    book, own = Ledger(shared, None), [Ledger(tmp_path / name / "ledger.sqlite", None) for name in ("a", "b")]
    assert isinstance(book.basis, AdaptiveBasis) and {one.basis for one in own} == {book.basis}
    spent = book.spent(Unit.CLIENT)
    assert (
        spent is not None and isinstance(spent.world, Repeated) and spent.world.times == 8
    )  # the same noise, found twice
    for name in ("a", "b"):
        found = json.loads((tmp_path / name / "run.json").read_text())
        assert 2.98 < found["epsilon"] <= 3.0 and found["accountant"] == book.price.name
    alone = tmp_path / "alone"
    assert run(["train", *words[:-2], "--out", str(alone)]) == 0
    more = [json.loads((folder / "run.json").read_text())["noise_multiplier"] for folder in (tmp_path / "a", alone)]
    assert 1.02 < more[0] / more[1] < 1.25


def test_a_plan_of_several_runs_is_priced_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.toml").write_text("rounds = 4\nepsilon = 2.0\n[data]\nclients = 40\n")
    (tmp_path / "plan.toml").write_text('[[run]]\nconfig = "one.toml"\ntimes = 2\n')
    shared = tmp_path / "shared.sqlite"
    assert run(["ledger", str(shared), "--plan", str(tmp_path / "plan.toml"), "--delta", "1e-5"]) == 0
    before = Ledger(shared, None).spent(Unit.CLIENT)
    assert before is not None and Ledger(shared, None).count == 0
    for name in ("a", "b", "c"):
        assert Ledger(shared, None).assumptions == ()
        assert Ledger(shared, None).spent(Unit.CLIENT) == before
        words = ["--config", str(tmp_path / "one.toml"), "--ledger", str(shared), "--quiet"]
        assert run(["train", *words, "--out", str(tmp_path / name)]) == 0
    assert Ledger(shared, None).assumptions == (EXCEEDED,)  # the third was not in it
    assert isinstance(Ledger(tmp_path / "a" / "ledger.sqlite", None).basis, PlanBasis)
    capsys.readouterr()
    with pytest.raises(LedgerError):
        store_plan(shared, tmp_path / "plan.toml")


# Those who choose after every output


def events_of(menu: list[Step], counts: tuple[int, ...]) -> list[Event]:
    kinds = [PoissonSampled(s.rate, GaussianEvent(s.ratio)) if s.rate < 1 else GaussianEvent(s.ratio) for s in menu]
    return [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]


def accepts(basis: AdaptiveBasis, budget: Budget, events: list[Event]) -> bool:
    """Whether a ledger with a budget takes all of them."""
    ledger = Ledger(None, "people", "who they are")
    ledger.begin(basis)
    ledger.set_budget(budget)
    try:
        for number, event in enumerate(events):
            ledger.reserve(run="a", round=number, costs=costs(event))
    except BudgetExceeded:
        return False
    return True


def test_a_shared_budget_is_not_passed_by_the_choice_of_a_second_run() -> None:
    """PRIVACY R13: added up by the exact accountant, either second run is accepted, and epsilon 2.214 is attained of 2."""
    menu, budget = [Step(2.5), Step(3.32), Step(0.2685, 1e-4)], Budget(2.0, DELTA)
    for second in ((1, 1, 0), (1, 0, 1)):
        assert accountant().epsilon(compose(*events_of(menu, second)), DELTA) <= 2.0
    basis = AdaptiveBasis(order_for(GaussianEvent(2.5), DELTA))
    room = attained(
        menu, lambda counts: 2.0, 4, may_follow=lambda counts: accepts(basis, budget, events_of(menu, counts))
    )
    assert 0.0 < room <= DELTA


@pytest.mark.parametrize("seed", range(4))
def test_no_policy_passes_the_budget_of_an_adaptive_ledger(seed: int) -> None:
    draw = np.random.default_rng(seed)
    menu = [
        Step(float(draw.uniform(1.0, 4.0))),
        Step(float(draw.uniform(0.6, 2.0)), float(10 ** draw.uniform(-3, -0.5))),
        Step(float(draw.uniform(0.3, 0.8)), float(10 ** draw.uniform(-4, -2))),
    ]
    budget = Budget(float(draw.uniform(1.0, 8.0)), float(10 ** draw.uniform(-5, -2)))
    basis = adaptive_for([(costs(event), 2) for event in events_of(menu, (1, 1, 1))], Unit.CLIENT, budget.delta)
    known: dict[tuple[int, ...], bool] = {}

    def fits(counts: tuple[int, ...]) -> bool:
        if counts not in known:
            known[counts] = accepts(basis, budget, events_of(menu, counts))
        return known[counts]

    room = attained(menu, lambda counts: budget.epsilon, 5, highest=30.0, may_follow=fits)
    assert room <= budget.delta
    if any(known.values()):
        assert room > 0.0


def test_a_run_that_is_extended_by_looking_attains_more_than_a_plan_would_print_and_so_it_is_assumed_away() -> None:
    delta, ratio, blocks = 0.01, 30.0 / math.sqrt(20), 50
    ledger = Ledger(None, "people", "who they are")
    ledger.begin(PlanBasis(((costs(GaussianEvent(ratio)), 1),)))
    printed = [0.0]
    for number in range(1, blocks + 1):
        ledger.reserve(run="a", round=number, costs=costs(GaussianEvent(ratio)))
        spent = ledger.spent(Unit.CLIENT)
        assert spent is not None and (EXCEEDED in ledger.assumptions) == (number > 1)
        printed.append(ledger.price.epsilon(spent.world, delta))
    assert printed[-1] == pytest.approx(gdp_epsilon(math.sqrt(blocks) / ratio, delta), rel=1e-6)
    room = attained([Step(ratio)], lambda counts: printed[counts[0]], blocks, width=5e-4, lowest=-6.0, highest=9.0)
    assert room > 3 * delta
