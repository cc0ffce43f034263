"""Clients whose records come together at one holder, and records that stay in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from sfumato import Population
from sfumato.data.population import Client
from tests.helpers import made_up_population


def test_one_client_holds_the_records_of_all() -> None:
    apart = made_up_population([3, 0, 5]).with_ids(["a", "b", "c"])
    joined = apart.joined()
    assert joined.size == 1 and joined.ids == ()
    assert torch.equal(joined.client(0).train.x, torch.cat([apart.client(number).train.x for number in range(3)]))
    assert joined.is_fixed and joined.identity not in (None, apart.identity)
    nobody_said = Population.from_function(lambda number: apart.client(number), size=3).joined()
    assert not nobody_said.is_fixed and nobody_said.identity is None


def test_what_is_kept_is_loaded_once_unless_it_may_change() -> None:
    client, loads = made_up_population([4]).client(0), []

    def load(number: int) -> Client:
        loads.append(number)
        return client

    for is_fixed, often in ((True, 1), (False, 3)):
        loads.clear()
        kept = replace(Population.from_function(load, size=1), is_fixed=is_fixed).kept()
        found: list[Any] = [kept.client(0) for _ in range(3)]
        assert len(loads) == often and all(torch.equal(one.train.x, client.train.x) for one in found)
        assert kept.is_fixed == is_fixed
