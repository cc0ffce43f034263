"""Budgets as people write them: a file or a mapping; what is wrong is said in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import Budgets, ClientBudget, Population, Unit
from sfumato.errors import BadValue, DataError
from tests.helpers import unchecked

FILE = """
[default]
epsilon = 4
delta = 1e-5

[[own]]
clients = [0, "5-7"]
epsilon = 1

[[own]]
clients = [3]
epsilon = 2
delta = 1e-6
law = "laplace"
by = "rate"
rounds = 9
"""
USUAL = {"default": (4.0, 1e-5)}


def test_a_file_and_a_mapping_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "budgets.toml"
    path.write_text(FILE)
    other = {"epsilon": 2.0, "delta": 1e-6, "law": "laplace", "by": "rate", "rounds": 9}
    found = Budgets.of({**USUAL, (0, "5-7"): {"epsilon": 1}, 3: other}, 10)
    assert Budgets.of(path, 10) == found == Budgets.of(found.to_table(), 10)
    assert found.groups(10) == [
        ((), ClientBudget(4.0, 1e-5)),
        ((0, 5, 6, 7), ClientBudget(1.0, 1e-5)),
        ((3,), ClientBudget(2.0, 1e-6, "laplace", "rate", 9)),
    ]
    assert found.delta == 1e-5


def test_a_default_is_needed_only_for_somebody() -> None:
    everyone = {client: (1.0 + client, 1e-5) for client in range(3)}
    assert [who for who, _ in Budgets.of(everyone, 3).groups(3)] == [(0,), (1,), (2,)]
    assert [who for who, _ in Budgets.of({**USUAL, **everyone}, 3).groups(3)] == [(0,), (1,), (2,)]
    with pytest.raises(BadValue, match=r"1 of 4 clients have no budget.*\[default\]"):
        Budgets.of(everyone, 4)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"default": (0.0, 1e-5)}, "default: a budget's epsilon is 0.0: it is positive"),
        ({"default": (float("inf"), 1e-5)}, "positive and finite"),
        ({"default": (1.0, 1.0)}, "delta is 1.0: a probability above 0 and below 1"),
        ({"default": ("2", 1e-5)}, "epsilon is '2': a number"),
        ({"default": {"epsilon": 2.0}}, "default lacks delta"),
        ({"default": {"epsilon": 2.0, "dleta": 1e-5}}, "no key 'dleta'. Did you mean 'delta'"),
        ({"default": {"epsilon": 2.0, "delta": 1e-5, "by": "nois"}}, "Did you mean 'noise'"),
        ({"default": {"epsilon": 2.0, "delta": 1e-5, "rounds": 0}}, "at least 1"),
        ({"default": {"epsilon": 2.0, "delta": 1e-5, "law": 3}}, "the name of a law"),
        ({"default": 4.0}, r"give \(epsilon, delta\)"),
        ({**USUAL, 10: (1.0, 1e-5)}, "budget for client 10, but clients are 0 to 9"),
        ({**USUAL, "8-12": (1.0, 1e-5)}, "but clients are 0 to 9"),
        ({**USUAL, -1: (1.0, 1e-5)}, "client -1, whom nobody knows"),
        ({**USUAL, "hospital": (1.0, 1e-5)}, "'hospital', whom nobody knows. Clients are numbers from 0 to 9"),
        ({**USUAL, 3: (1.0, 1e-5), "2-4": (2.0, 1e-5)}, "client 3 is given two budgets"),
        ({**USUAL, (3, 3): (1.0, 1e-5)}, "client 3 is given two budgets"),
        ({"default": {"epsilon": 2.0, "delta": 1e-5}, "own": [{"epsilon": 1.0}]}, "names its clients=None"),
        ({**USUAL, "own": [{"clients": [1], "epsilon": 1.0}], "owm": []}, "no table 'owm'. Did you mean 'own'"),
        (4.0, "give a file, or a mapping"),
    ],
    ids=str,
)
def test_mistakes_are_told(given: Any, says: str) -> None:
    with unchecked(), pytest.raises(BadValue, match=says):
        Budgets.of(given, 10)


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        Budgets.of(tmp_path / "nothing.toml", 10)
    (tmp_path / "broken.toml").write_text("epsilon = = 3")
    with pytest.raises(BadValue, match="not TOML"):
        Budgets.of(tmp_path / "broken.toml", 10)


def test_clients_go_by_their_ids_where_they_have_some(tmp_path: Path) -> None:
    data = (torch.ones(3, 2), torch.zeros(3))
    named = Population.from_list([data] * 3, ids=["north", "south", "west"])
    given = {**USUAL, "south": (1.0, 1e-5), 2: (2.0, 1e-5)}
    assert [who for who, _ in Budgets.of(given, named.size, named.ids).own] == [(1,), (2,)]
    with pytest.raises(BadValue, match="Did you mean 'north'"):
        Budgets.of({**USUAL, "nort": (1.0, 1e-5)}, named.size, named.ids)
    numbered = Population.from_list([data] * 3, ids=[101, 102, 103])
    assert Budgets.of({**USUAL, 103: (1.0, 1e-5)}, 3, numbered.ids).own[0][0] == (2,)
    with pytest.raises(BadValue, match="client 2, whom nobody knows"):
        Budgets.of({**USUAL, 2: (1.0, 1e-5)}, 3, numbered.ids)
    for name in ("a", "b"):
        torch.save({"x": data[0], "y": data[1]}, tmp_path / f"{name}.pt")
    folder = Population.from_folder(tmp_path)
    assert Budgets.of({**USUAL, "b.pt": (1.0, 1e-5)}, folder.size, folder.ids).own[0][0] == (1,)


def test_the_lines_of_a_ledger_leave_nobody_out() -> None:
    usual, own = Budgets.of({**USUAL, 3: (1.0, 1e-5)}, 10).lines(Unit.RECORD)
    assert (usual.clients, usual.but, own.clients) == (None, (3,), (3,))
    assert "of all clients without" in usual.whose and "of client 3" in own.whose
