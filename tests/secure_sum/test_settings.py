"""Settings for which nothing is proven cannot be made, and what is proven is said."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sfumato.errors import BadValue
from sfumato.exact_draws import discrete_gaussian
from sfumato.key import Key
from sfumato.secure_sum import Client, Power, Server, SumSettings, assumptions, to_steps
from sfumato.secure_sum.modulus import wrap_chance
from tests.secure_sum.rounds import agreed, signing, verifying


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"session": bytes(31)}, "a session has 32 bytes"),
        ({"clients": (3,)}, "no rising tuple"),
        ({"clients": (3, 3, 4, 5, 6)}, "no rising tuple"),
        ({"clients": (7, 3, 8, 9, 10)}, "no rising tuple"),
        ({"clients": (-1, 3, 8, 9, 10)}, "no rising tuple"),
        ({"clients": (3, 4, 5, 6, 2**63)}, "below 2\\^63"),
        ({"dimension": 0}, "at least 1"),
        ({"bits": 16}, "32 or 64"),
        ({"largest": -1}, "at least 0"),
        ({"noise": -1.0}, "0 if it adds none"),
        ({"noise": math.nan}, "0 if it adds none"),
        ({"colluding": -1}, "need not hide anybody"),
        ({"colluding": 4}, "need not hide anybody"),
        ({"smallest": 6}, "need not hide anybody"),
        ({"threshold": 1}, "known to those who collude"),
        ({"threshold": 5}, "need not be there"),
        ({"neighbours": 3}, "an even number"),
        ({"neighbours": 5}, "an even number"),
        ({"clients": tuple(range(3000)), "smallest": 2900, "neighbours": 1002}, "up to 1000"),
        ({"neighbours": 0}, "an even number"),
        ({"neighbours": 2, "threshold": 1}, "show more than the sum"),
        ({"power": Power.ACTIVE, "neighbours": 2, "threshold": 2}, "nothing is proven"),
        ({"power": Power.ACTIVE, "threshold": 3}, "two sets of survivors"),
        ({"bits": 32, "largest": 2**29}, "read wrongly"),
        ({"bits": 32, "noise": 2.0**28}, "read wrongly"),
    ],
)
def test_refusals(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(BadValue, match=match):
        replace(agreed(), **changes)


def test_the_conditions_are_sharp() -> None:
    """n + c < 2 t against an active server; c < t against one that follows the protocol."""
    clients = tuple(range(9))
    for colluding in range(8):
        for threshold in range(1, 10):
            for power, proven in (
                (Power.FOLLOWS, colluding < threshold),
                (Power.ACTIVE, colluding < threshold and 9 + colluding < 2 * threshold),
            ):
                arguments = (bytes(32), clients, 1, 64, 1, 0.0, 9, colluding, threshold, 8, power)
                if proven:
                    SumSettings(*arguments)
                else:
                    with pytest.raises(BadValue):
                        SumSettings(*arguments)


@pytest.mark.parametrize("count", [2, 3, 4, 9, 10, 30, 31])
def test_a_third_may_collude_with_an_active_server(count: int) -> None:
    colluding = -(-count // 3) - 1
    threshold = 2 * count // 3 + 1
    settings = agreed(count, power=Power.ACTIVE, smallest=threshold, colluding=colluding)
    assert settings.threshold <= threshold and settings.exposure == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"bits": "64"},
        {"dimension": True},
        {"session": "zz"},
        {"clients": "3,x"},
        {"clients": "03,7,11,15,19"},
        {"power": "honest"},
        {"more": 1},
    ],
)
def test_settings_are_read_as_they_are_written(wrong: dict[str, Any]) -> None:
    facts = agreed().to_json()
    assert all(isinstance(value, str | int) for value in facts.values())
    with pytest.raises(BadValue, match="settings of a secure sum"):
        SumSettings.from_json({**facts, **wrong})
    with pytest.raises(BadValue, match="settings of a secure sum"):
        SumSettings.from_json({name: value for name, value in facts.items() if name != "noise"})


def test_every_setting_is_in_the_digest() -> None:
    base = agreed(6, smallest=5, colluding=1)
    others: list[dict[str, Any]] = [
        {"session": bytes(32)}, {"clients": (1, 7, 11, 15, 19, 23)}, {"dimension": 7}, {"bits": 32}, {"largest": 5}, {"noise": 1.0},
        {"smallest": 6}, {"colluding": 2}, {"threshold": 4}, {"power": Power.ACTIVE, "threshold": 5},
    ]  # fmt: skip
    digests = [base.digest, *(replace(base, **changes).digest for changes in others)]
    assert len(set(digests)) == len(digests)


def test_what_is_assumed_is_said() -> None:
    follows, active = agreed(), agreed(power=Power.ACTIVE, smallest=4)
    few = agreed(200, smallest=180, colluding=5)
    said = {name: "; ".join(assumptions(one)) for name, one in (("follows", follows), ("active", active), ("few", few))}
    assert "follows the protocol" in said["follows"] and "Ed25519" not in said["follows"]
    assert "any way" in said["active"] and "Ed25519" in said["active"] and "signing keys" in said["active"]
    assert "at most 1 of the 5 clients" in said["follows"] and "at least 3 rows" in said["follows"]
    assert "neighbours were drawn" in said["few"] and "2^-4" in said["few"] and "drawn" not in said["follows"]


def test_the_chance_of_a_wrap_bounds_what_happens() -> None:
    """Short of room on purpose: 3 clients, deviation 40, and a sum that wraps beyond 150 of what rows leave."""
    draws = [discrete_gaussian(100_000, 40.0, Key.from_seed(seed)) for seed in range(3)]
    room = 150
    happened = float((np.abs(sum(draws)) >= room).mean())
    bound = wrap_chance(3, 1, 32, (2**31 - room) // 3, 40.0)
    assert 0.005 < happened < bound < 0.3
    assert wrap_chance(3, 100, 32, (2**31 - room) // 3, 40.0) == 1.0


def test_rows_off_the_grid_are_refused() -> None:
    for row in ([0.3], [math.nan], [math.inf], [2.0**70]):
        with pytest.raises(BadValue, match="whole steps"):
            to_steps(np.array(row), 0.25)


def test_keys_that_are_needed_must_be_there() -> None:
    settings = agreed(power=Power.ACTIVE)
    keys = verifying(settings)
    assert keys is not None
    with pytest.raises(BadValue, match="signing key"):
        Client(settings, 3, Key.from_seed(0), None, keys)
    for wrong in (None, {3: keys[3]}, keys | {7: bytes(31)}):
        with pytest.raises(BadValue, match="client 7 has no verifying key|client 3 has no verifying key"):
            Client(settings, 3, Key.from_seed(0), signing(3), wrong)
        with pytest.raises(BadValue, match="no verifying key"):
            Server(settings, wrong)
    with pytest.raises(BadValue, match="not in the cohort"):
        Client(agreed(), 4, Key.from_seed(0))
