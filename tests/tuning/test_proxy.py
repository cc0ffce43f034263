"""`tune --proxy`: the same noise beside fewer clients, the proxy's own test split, and proxies that are none."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sfumato import PublicData
from sfumato.data.population import Population
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.run.prepare import Prepared, prepare
from sfumato.run.request import DataRequest, Request
from sfumato.tuning import proxy as home
from sfumato.tuning.candidates import with_settings
from sfumato.tuning.proxy import choose_on_proxy
from tests.data.test_usps_and_domains import write_libsvm

OPTIONS = {"sample": "everyone", "epochs": 1, "clip": 1.0, "lr": 0.5}
RATES = ({"options.server_lr": 1e-6}, {"options.server_lr": 1.0})


class Untouched(PublicData):
    """A test split that nobody may look at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} of the target's test split was read")


def hers(clients: int = 400, **options: Any) -> Prepared:
    """Clients with pictures of eight by eight, whom nobody counts or reads; digits are a proxy for them."""
    request = Request(
        epsilon=8.0,
        delta=1e-3,
        rounds=3,
        data=DataRequest(name="digits", clients=40, records_per_client=3),
        options={**OPTIONS, **options},
    )
    found = prepare(request)
    unread = Population("hers", clients, partial(_unread, "a client"))
    data = DataRequest(name="hers:clients", clients=clients, records_per_client=0, outputs=10)
    hidden = object.__new__(Untouched)
    declared = replace(found, request=replace(request, data=data), population=unread, test=hidden, counts={})
    return with_settings(declared, {})


def _unread(what: str, *given: Any) -> Any:
    raise AssertionError(f"{what} was read")


def settings_of_runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Rounds and populations that are really run."""
    seen = []

    def watched(round: Any, population: Any, *given: Any, **named: Any) -> Any:
        seen.append((round, population))
        return simulate(round, population, *given, **named)

    monkeypatch.setattr(home, "simulate", watched)
    return seen


def test_best_first_each_told_as_it_is_done_and_the_target_is_not_read() -> None:
    heard: list[Any] = []
    found = choose_on_proxy(hers(), "digits", RATES, heard.append)
    assert [one.settings for one in heard] == list(RATES), "in the order of trying"
    assert [one.settings for one in found] == [RATES[1], RATES[0]] and found[0].score > found[1].score + 0.1
    assert choose_on_proxy(hers(), "digits", RATES) == found, "a public seed"


@pytest.mark.parametrize(
    ("clients", "sample", "drawn"),
    [(400, "everyone", 400), (5000, "everyone", 5000), (5000, "poisson:0.1", 500), (5000, "fixed:20", 20)],
)
def test_noise_beside_the_proxy_is_as_large_as_beside_the_target(
    clients: int, sample: str, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, seen = hers(clients, sample=sample), settings_of_runs(monkeypatch)
    choose_on_proxy(target, "digits", RATES[1:])
    ((round, population),) = seen
    assert population.size == min(clients, 1400), "one record each, where they are not enough for all"
    own = round.derive(population=population.size, dimension=650).primary
    wanted = target.round.derive(population=clients, dimension=650).primary
    assert own.stddev == pytest.approx(wanted.stddev, rel=1e-6), "of the mean over those who are drawn"
    assert round.aggregate.divisor == pytest.approx(drawn * (population.size / clients if sample != "fixed:20" else 1))


def test_as_many_clients_as_its_records_are_enough_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = settings_of_runs(monkeypatch)
    target = hers(900)
    target = replace(target, request=replace(target.request, data=replace(target.request.data, records_per_client=20)))
    choose_on_proxy(target, "digits", RATES[1:])
    ((_, population),) = seen
    assert 50 < population.size < 900 // 10 and population.client(0).train.count == 20


def small(tmp_path: Path, **changed: Any) -> Prepared:
    """Digits are the clients', and a made-up usps of 16 by 16 lies there as a proxy."""
    write_libsvm(tmp_path / "usps")
    data = DataRequest(clients=20, records_per_client=2, features="resize:8,pixels", folder=str(tmp_path))
    request = Request(epsilon=8.0, delta=1e-3, rounds=1, data=replace(data, **changed), options=OPTIONS)
    return prepare(request)


def test_another_set_by_name(tmp_path: Path) -> None:
    (best,) = choose_on_proxy(small(tmp_path), "usps", RATES[1:])
    assert 0.0 <= best.score <= 1.0


@pytest.mark.parametrize(
    ("proxy", "changed", "said"),
    [
        ("ups", {}, "there is no such data set. Did you mean 'usps'?"),
        ("digits", {}, "clients of digits hold the same records"),
        ("usps", {"features": None}, r"its records have the shape \(1, 16, 16\), the clients' \(1, 8, 8\)"),
        ("usps", {"clients": 5, "records_per_client": 200}, "too few for clients of 200. Give a larger one"),
    ],
)
def test_what_is_no_proxy_is_refused(proxy: str, changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=f"--proxy {proxy}.*{said}"):
        choose_on_proxy(small(tmp_path, **changed), proxy, RATES)


def test_other_classes_or_another_task_are_refused(tmp_path: Path) -> None:
    target = small(tmp_path)
    with pytest.raises(BadValue, match="--proxy usps has 10 classes for classification; the clients' records have 4"):
        choose_on_proxy(replace(target, outputs=4), "usps", RATES)
    other = replace(target.request, data=replace(target.request.data, task="multi-label"))
    with pytest.raises(BadValue, match="for multi-label. Give a proxy of the same task with no more classes"):
        choose_on_proxy(replace(target, request=other), "usps", RATES)


@pytest.mark.data
def test_sets_that_hold_the_same_records_are_no_proxies() -> None:
    data = DataRequest(name="mnist", clients=50, records_per_client=2)
    target = prepare(Request(epsilon=8.0, delta=1e-3, rounds=1, data=data, options=OPTIONS))
    with pytest.raises(BadValue, match="--proxy emnist-digits: clients of mnist hold the same records"):
        choose_on_proxy(target, "emnist-digits", RATES)
    with pytest.raises(BadValue, match="--proxy emnist-letters has 26 classes"):
        choose_on_proxy(target, "emnist-letters", RATES)


def test_records_of_one_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_libsvm(tmp_path / "usps")
    data = DataRequest(clients=1, records_per_client=0, features="resize:8,pixels", folder=str(tmp_path))
    options = {"batch": "poisson:0.5", "lr": 0.1}
    target = prepare(Request(recipe="dp-sgd", epsilon=8.0, delta=1e-5, rounds=2, data=data, options=options))
    seen = settings_of_runs(monkeypatch)
    choose_on_proxy(target, "usps", ({"options.lr": 0.1},))
    ((round, population),) = seen
    records = population.client(0).train.count
    assert population.size == 1 and round.local.records == records < target.round.local.records
    ratio = round.local.law.noise_multiplier / target.round.local.law.noise_multiplier
    assert ratio == pytest.approx(records / target.round.local.records)
