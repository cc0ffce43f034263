"""What `tune` promises: the price of what runs, other selections counted apart, and nothing of clients' data for free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.account.event import Unit
from sfumato.account.selected import Selected
from sfumato.errors import BadValue
from sfumato.ledger.ledger import Ledger
from sfumato.run.prepare import Prepared, prepare
from sfumato.run.request import DataRequest, Request
from sfumato.tuning.proxy import _request
from sfumato.tuning.select import Law, Selection

RATES = ({"options.server_lr": 1.0}, {"options.server_lr": 2.0})


def prepared(**given: object) -> Prepared:
    request = Request(rounds=1, epsilon=4.0, data=DataRequest(clients=20), options={"sample": "everyone"})
    return prepare(replace(request, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["noise_multiplier", "stddev"])
def test_noise_that_the_user_gives_is_not_priced_as_other_noise(key: str) -> None:
    with pytest.raises(BadValue, match="finds the noise"):
        Selection.of(prepared(), [{f"options.{key}": 0.001}], Law(0.2))
    given = prepared()
    request = replace(given.request, options={**given.request.options, key: 0.001})
    with pytest.raises(BadValue, match="no --noise-multiplier"):
        Selection.of(replace(given, request=request), RATES, Law(0.2))


def test_what_is_paid_is_what_runs() -> None:
    selection = Selection.of(prepared(), RATES, Law(0.2))
    paid = selection.costs[Unit.CLIENT].world
    assert isinstance(paid, Selected)
    for candidate in selection.candidates:
        runs = candidate.round.derive(population=20, dimension=650).primary.world
        assert runs in list(paid.event.walk())


def test_a_seed_draws_anew_for_other_settings_which_are_paid_for(tmp_path: Path) -> None:
    book = tmp_path / "shared.sqlite"
    given = prepared(ledger=str(book), force_ledger=True)
    for number, tried in enumerate([RATES, RATES[:1], RATES]):
        (tmp_path / str(number)).mkdir()
        Selection.of(given, tried, Law(0.5)).run(tmp_path / str(number), seed=5)
    assert Ledger(book, None).count == 2  # the third is the first, to the bit


@pytest.mark.parametrize(
    ("data", "proxy"),
    [
        ("mnist", "emnist-mnist"),
        ("mnist", "emnist-balanced"),
        ("emnist-balanced", "emnist-letters"),
        ("svhn", "svhn-extra"),
    ],
)
def test_a_proxy_that_clients_hold_records_of_is_not_free(data: str, proxy: str) -> None:
    target = prepared()
    request = replace(target.request, data=replace(target.request.data, name=data))
    with pytest.raises(BadValue, match="hold the same records"):
        _request(replace(target, request=request), proxy)


def test_a_proxy_is_shared_out_without_counting_records_of_the_users_own() -> None:
    target = prepared()

    def load(number: int) -> None:
        raise AssertionError("a client's records were read")

    data = replace(target.request.data, name="mine:clients", records_per_client=0)
    own = replace(
        target, request=replace(target.request, data=data), counts={}, population=replace(target.population, load=load)
    )
    found = _request(own, "digits").data
    assert (found.clients, found.records_per_client) == (20, 70)
