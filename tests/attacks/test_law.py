"""The law: no explicit attack on a random small round attains more than is printed. And the attack is a strong one."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from sfumato import (
    AddNoise,
    Clip,
    ClipPerLayer,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    Mean,
    NoiseShare,
    Poisson,
    Relation,
    Round,
    SecureSum,
    Unit,
)  # fmt: skip
from tests.attacks.hunt import Tally, hunt
from tests.attacks.search import DELTAS, Shape, attacks, printed
from tests.attacks.semantics import Chosen, Semantics

SHARED = {"client": (Clip(1.0), NoiseShare(Gaussian(2.0), 1)), "server": (), "channel": SecureSum(2)}


def test_no_attack_attains_more_than_is_printed() -> None:
    tally = Tally()
    found = [one for one in islice(hunt(13, tally), 400) if one is not None]
    assert not found, "\n".join(map(str, found))
    assert tally.counts["left alone"] < tally.counts["attacked"]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"sample": Poisson(0.3, Relation.REPLACE)},
        {"sample": Everyone()},
        {"sample": FixedSize(2, Relation.REPLACE, curious=0)},
        {"sample": FixedSize(2, Relation.ADD_REMOVE, curious=0)},
        {"client": (ClipPerLayer((0.6, 0.8)),)},
        {"sample": Poisson(0.5, Relation.ZERO_OUT), "client": (Clip(1.0), AddNoise(Gaussian(1.0))), "server": ()},
        {"sample": Everyone(Relation.REPLACE), **SHARED},
        {"local": DpSgd(1, Poisson(0.3), 4), "client": (), "server": (), "unit": Unit.RECORD},
        {"local": DpSgd(1, FixedSize(2), 4), "client": (), "server": (), "unit": Unit.RECORD},
    ],
    ids=str,
)
def test_where_the_printed_epsilon_is_exact_the_attack_attains_it(changed: dict[str, Any]) -> None:
    slots = {"sample": Poisson(0.5), "local": Chosen(), "client": (Clip(1.0),), "server": (AddNoise(Gaussian(1.0)),)}
    round = Round(**{**slots, "aggregate": Mean(2.0), **changed})
    shape, rounds, population = Shape((2, 1)), 2, 4
    derivation = round.derive(population=population, dimension=shape.dimension)
    proof = derivation.primary
    view, event = ("server", proof.server) if proof.server is not None else ("world", proof.world)
    assert event is not None
    claims = [(delta, printed(event, rounds, delta, proof.unit, proof.relation)) for delta in DELTAS]
    run = Semantics.of(round, proof.stddev)
    tried = attacks(round, run, population, shape, rounds, proof.unit, proof.relation, view, claims)  # type: ignore[arg-type]
    for delta, epsilon in claims:
        assert epsilon is not None
        assert 0.95 * epsilon <= max(seen.epsilon(delta) for _, seen in tried) <= epsilon
