"""The node's ledgers: budgets to the last event, of one data set and of all; a full disk."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sfumato.account import accountant
from sfumato.account.adaptive import AtOrder, order_for
from sfumato.account.event import Event, Repeated, Unit
from sfumato.data.population import Client, Population
from sfumato.federation.node.costs import Dues
from sfumato.federation.terms import Agreement, Terms
from sfumato.ledger.ledger import Budget, Ledger
from tests.federation.node.helpers import PEOPLE, ledger_of, letter_of, node_of, store_records, terms_of

BUDGET = Budget(1.0, 1e-5)


def price(event: Event | None, planned: Event, unit: Unit = Unit.CLIENT) -> Budget:
    """A budget for exactly this, at the order that suits what the terms of the first run plan."""
    assert event is not None
    by = AtOrder(order_for(planned, BUDGET.delta))
    return replace(BUDGET, epsilon=BUDGET.spent(event, by=by), unit=unit)


def less(budget: Budget) -> Budget:
    return replace(budget, epsilon=budget.epsilon * (1 - 1e-9))


PRIVATE = terms_of("perturb-model", rounds=5)  # noise at the client
PROMISED = terms_of("dp-fedavg", rounds=5)


def event_of(terms: Terms) -> Event:
    dues = Dues.of(Agreement.of(terms), 1)
    return dues.of_one_answer().by_unit[Unit.CLIENT].world if dues.own else dues.promised[Unit.CLIENT].world


@pytest.mark.parametrize("where", ["set", "total"])
def test_a_budget_of_answers_is_reached_and_not_passed(tmp_path: Path, where: str) -> None:
    three = price(Repeated(event_of(PRIVATE), 3), Repeated(event_of(PRIVATE), 5))
    code = "refused.total" if where == "total" else "refused.epsilon"
    limits: dict[str, Any] = {"total": three} if where == "total" else {"budgets": {"set": three}}
    node = node_of(tmp_path / "a", **limits)
    kinds = [node(letter_of(PRIVATE, number=number)).kind for number in range(5)]
    assert kinds == ["ok", "ok", "ok", code, code]
    assert ledger_of(tmp_path / "a").count == Ledger(tmp_path / "a" / "total.sqlite", None).count == 3
    assert node(letter_of(PRIVATE, number=2)).kind == "ok"  # its reply is stored
    assert node(letter_of(PRIVATE, number=1)).kind == code
    short: dict[str, Any] = {"total": less(three)} if where == "total" else {"budgets": {"set": less(three)}}
    node = node_of(tmp_path / "b", **short)
    assert [node(letter_of(PRIVATE, number=number)).kind for number in range(3)] == ["ok", "ok", code]
    assert ledger_of(tmp_path / "b").count == Ledger(tmp_path / "b" / "total.sqlite", None).count == 2


@pytest.mark.parametrize("where", ["set", "total"])
def test_a_budget_for_a_promise_must_suffice_for_all_of_it(tmp_path: Path, where: str) -> None:
    five = price(Repeated(event_of(PROMISED), 5), Repeated(event_of(PROMISED), 5))
    code = "refused.total" if where == "total" else "refused.epsilon"

    def limits(budget: Budget) -> dict[str, Any]:
        return {"total": budget} if where == "total" else {"budgets": {"set": budget}}

    short = node_of(tmp_path / "a", **limits(less(five)))
    assert short(letter_of(PROMISED)).kind == code
    assert ledger_of(tmp_path / "a").count == Ledger(tmp_path / "a" / "total.sqlite", None).count == 0
    node = node_of(tmp_path / "b", **limits(five))
    assert [node(letter_of(PROMISED, number=number)).kind for number in range(5)] == ["ok"] * 5
    assert ledger_of(tmp_path / "b").count == 1  # one entry, for five rounds
    assert node(letter_of(PROMISED, number=4, attempt=1)).kind == code  # begun again
    assert node(letter_of(PROMISED, number=1, planned=6)).kind == code
    assert node(letter_of(PROMISED, number=4)).kind == "ok"  # its reply is stored


@pytest.mark.parametrize("terms", [PRIVATE, PROMISED])
def test_a_data_set_for_one_run_costs_its_plan_and_refuses_what_goes_beyond(tmp_path: Path, terms: Terms) -> None:
    event = Repeated(event_of(terms), 5)
    exact = accountant().epsilon(event, BUDGET.delta)
    limits: dict[str, Any] = {"budgets": {"set": replace(BUDGET, epsilon=exact)}, "basis": "plan"}
    node = node_of(tmp_path, **limits)
    assert node(letter_of(terms)).kind == "ok"
    ledger = ledger_of(tmp_path)
    spent = ledger.spent(Unit.CLIENT)
    assert spent is not None and spent.world == event and ledger.price.epsilon(event, BUDGET.delta) == exact
    assert [node(letter_of(terms, number=number)).kind for number in range(1, 5)] == ["ok"] * 4
    roomy: dict[str, Any] = {**limits, "budgets": {"set": replace(BUDGET, epsilon=10 * exact)}}
    assert node_of(tmp_path, **roomy)(letter_of(replace(terms, run="other"), number=0)).kind == "refused.plan"
    assert ledger_of(tmp_path).assumptions == ledger.assumptions and not ledger_of(tmp_path).damage()


def test_an_answer_of_one_run_is_no_promise_of_another(tmp_path: Path) -> None:
    """Answers stand in the ledger under the name of their run: under this one, as a promise that had been recorded."""
    log: list[str] = []
    node = node_of(tmp_path, log=log)
    assert node(letter_of(replace(PRIVATE, run="promise:run"), number=999)).kind == "refused.terms"
    assert "promise of another run" in log[0]
    assert node(letter_of(PROMISED)).kind == "ok"
    (entry,) = ledger_of(tmp_path).entries()
    assert entry.costs[Unit.CLIENT].world == Repeated(event_of(PROMISED), 5)


def test_the_total_is_over_data_sets(tmp_path: Path) -> None:
    store_records(tmp_path)
    three = price(Repeated(event_of(PRIVATE), 3), Repeated(event_of(PRIVATE), 5))
    limits: dict[str, Any] = {"budgets": {name: replace(three, epsilon=100.0) for name in ("a", "b")}, "total": three}
    first, second = (node_of(tmp_path, name=name, **limits) for name in ("a", "b"))
    other = replace(PRIVATE, run="other")
    assert [first(letter_of(PRIVATE, number=number)).kind for number in range(2)] == ["ok", "ok"]
    assert [second(letter_of(other, number=number)).kind for number in range(2)] == ["ok", "refused.total"]
    assert first(letter_of(PRIVATE, number=2)).kind == "refused.total"
    assert (ledger_of(tmp_path, "a").count, ledger_of(tmp_path, "b").count) == (2, 1)


def test_the_same_promise_for_two_data_sets_counts_twice(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"budgets": {name: Budget(float("inf"), 0.5) for name in ("a", "b")}}
    for name in ("a", "b"):
        assert node_of(tmp_path, name=name, **limits)(letter_of(PROMISED)).kind == "ok"
    spent = Ledger(tmp_path / "total.sqlite", None).spent(Unit.CLIENT)
    assert spent is not None and spent.world == Repeated(event_of(PROMISED), 10)


def test_a_budget_that_was_changed_or_taken_away_holds_at_once(tmp_path: Path) -> None:
    one = price(event_of(PRIVATE), Repeated(event_of(PRIVATE), 5))
    assert node_of(tmp_path, budgets={"set": one})(letter_of(PRIVATE, number=0)).kind == "ok"
    assert node_of(tmp_path, budgets={"set": one})(letter_of(PRIVATE, number=1)).kind == "refused.epsilon"
    unlimited = node_of(tmp_path)
    assert unlimited(letter_of(PRIVATE, number=1)).kind == "ok" and ledger_of(tmp_path).budget is None
    assert node_of(tmp_path, budgets={"set": one})(letter_of(PRIVATE, number=2)).kind == "refused.epsilon"


def test_only_the_owner_can_read_a_nodes_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        terms = terms_of("prifedsync", options={"records": 5, "batch": "poisson:0.5", "steps": 1})
        node = node_of(tmp_path / "node")
        node.log = type(node)(node.policy).log
        for kind in ("train", "released", "end"):
            assert node(letter_of(terms, kind)).kind == "ok"
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "node").rglob("*") if path.is_file() and path.name != "records.pt"]
    names = {path.name for path in files}
    assert {
        "ledger.sqlite",
        "total.sqlite",
        "journal.sqlite",
        "node.log",
        "kept-0-0.safetensors",
    } <= names
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files), names


@contextmanager
def no_file_grows_beyond(size: int) -> Iterator[None]:
    """Writes fail as they do on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("terms", [PRIVATE, PROMISED], ids=["own", "promised"])
@pytest.mark.parametrize("begun", [False, True])
def test_nothing_is_trained_on_a_full_disk(tmp_path: Path, terms: Terms, begun: bool) -> None:
    """Wherever the disk is full: either it was recorded in both ledgers, or nothing was trained. Then it goes on."""
    found = set()
    for size in (0, 4096, 12288, 20480, 32768, 2**20):
        folder = tmp_path / str(size)
        loads: list[int] = []
        store_records(folder)
        node = node_of(folder, data=partial(recording, loads))
        if begun:
            assert node(letter_of(terms, number=0)).kind == "ok"
            loads.clear()
            node.loaded._last = None
        letter = letter_of(terms, number=1, attempt=1)
        with no_file_grows_beyond(size):
            kind = node(letter).kind
        found.add(kind)
        assert kind in ("ok", "refused.full") and len(loads) == (kind == "ok")
        if kind == "ok":
            wanted = 1 + begun
            assert ledger_of(folder).count == Ledger(folder / "total.sqlite", None).count == wanted
        assert node(letter).kind == "ok"
    assert found == {"ok", "refused.full"}


def recording(loads: list[int]) -> Population:
    def load(number: int) -> Client:
        loads.append(number)
        return PEOPLE.client(1)

    return Population("set", 1, load, is_fixed=True)


def test_a_file_that_may_not_be_written(tmp_path: Path) -> None:
    log: list[str] = []
    node = node_of(tmp_path, log=log)
    (tmp_path / "set" / "ledger.sqlite").mkdir(parents=True)  # root may write whatever is read-only
    assert node(letter_of(PRIVATE)).kind == "refused.full" and "ledger.sqlite" in log[-1]


def test_a_damaged_ledger_is_not_written_on(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "ledger.sqlite").write_bytes(b"no ledger" * 999)
    assert node(letter_of(PRIVATE)).kind == "refused.ledger"
