"""Test parts with the client's own labels, out of the public test split."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sfumato import Key, Population, PublicData, Records
from sfumato.data.test_parts import with_test_parts
from sfumato.errors import BadValue, DataError

PUBLIC = PublicData("public", Records(torch.arange(400.0)[:, None], torch.arange(400) % 4))


def population(labels: list[list[int]]) -> Population:
    return Population.from_list([(torch.zeros(len(own), 1), torch.tensor(own, dtype=torch.int64)) for own in labels])


def test_labels_follow_the_clients_own() -> None:
    clients = with_test_parts(population([[0] * 30 + [2] * 10, [3] * 5, []]), PUBLIC, 60, Key.from_seed(0))
    first, second, empty = (clients.client(number).test for number in range(3))
    assert first is not None and second is not None and empty is not None
    counts = np.bincount(first.y.numpy(), minlength=4)
    assert counts.sum() == 60 and counts[1] == counts[3] == 0
    assert 30 <= counts[0] <= 57  # three quarters of 60, give or take
    assert set(second.y.tolist()) == {3} and empty.count == 0
    assert len(set(first.x.flatten().tolist())) == 60  # without replacement
    assert all(int(x) % 4 == y for x, y in zip(first.x.flatten().tolist(), first.y.tolist(), strict=True))


def test_training_records_stay() -> None:
    base = population([[0, 1], [2, 3]])
    clients = with_test_parts(base, PUBLIC, 5, Key.from_seed(0))
    assert clients.is_fixed and clients.size == 2
    assert torch.equal(clients.client(1).train.y, base.client(1).train.y)
    again = with_test_parts(base, PUBLIC, 5, Key.from_seed(0)).client(1).test
    other = with_test_parts(base, PUBLIC, 5, Key.from_seed(1)).client(1).test
    found = clients.client(1).test
    assert found is not None and again is not None and other is not None
    assert torch.equal(found.x, again.x) and not torch.equal(found.x, other.x)


def test_a_label_that_runs_out_gives_fewer() -> None:
    test = with_test_parts(population([[1]]), PUBLIC, 150, Key.from_seed(0)).client(0).test
    assert test is not None and test.count == 100


def test_refusals() -> None:
    with pytest.raises(BadValue, match="at least one record"):
        with_test_parts(population([[1]]), PUBLIC, 0, Key.from_seed(0))
    with pytest.raises(DataError, match="one class per record"):
        with_test_parts(
            population([[1]]), PublicData("p", Records(torch.ones(2, 1), torch.ones(2))), 5, Key.from_seed(0)
        )
