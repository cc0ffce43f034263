"""Pairs of candidates, opposite shadows, and confidences."""

from __future__ import annotations

import math

import pytest
import torch

from sfumato.audit.shadows import confidence
from sfumato.audit.units import Units, coins, inside
from sfumato.data.population import Records
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.measures import cross_entropy


def test_each_unit_is_in_exactly_half_of_the_shadows_and_one_of_each_pair_in_every_one() -> None:
    choices = coins(Key.from_seed(0), 8, 50)
    held = inside(choices)
    assert (held.sum(0) == 4).all() and (held[:, :50] ^ held[:, 50:]).all()
    assert torch.equal(coins(Key.from_seed(0), 4, 50), choices[:4])
    assert 100 < int(choices[::2].sum()) < 300 and not torch.equal(choices[0], choices[2])
    assert not torch.equal(coins(Key.from_seed(1), 8, 50), choices)


@pytest.mark.parametrize("count", [1, 7])
def test_an_odd_number_of_shadows_is_refused(count: int) -> None:
    with pytest.raises(BadValue, match="even number"):
        coins(Key.from_seed(0), count, 10)


def test_a_client_is_the_mean_over_its_records() -> None:
    clients = [Records(torch.full((size, 2), float(size)), torch.arange(size)) for size in (1, 3, 2, 4)]
    units = Units.of_clients(clients[:2], clients[2:])
    values = torch.arange(20.0).reshape(2, 10)
    slow = torch.stack(
        [torch.stack([row[:1].mean(), row[1:4].mean(), row[4:6].mean(), row[6:].mean()]) for row in values]
    )
    assert torch.allclose(units.means(values), slow)
    assert (units.pairs, units.count, units.kind) == (2, 4, "client")


def test_confidence_is_the_log_odds_of_the_right_class() -> None:
    outputs, y = 10.0 * Key.from_seed(0).normal(200, 5), torch.arange(200) % 5
    p = outputs.softmax(1)[torch.arange(200), y]
    rest = outputs.clone()
    rest[torch.arange(200), y] = -math.inf
    expected = outputs[torch.arange(200), y] - rest.logsumexp(1)
    found = confidence(cross_entropy(outputs, y))
    assert torch.allclose(found, expected, atol=1e-3)
    assert float(p.min()) < 1e-6 and float(p.max()) > 1 - 1e-6
    assert confidence(torch.tensor([0.0, math.inf])).tolist() == [50.0, -50.0]
