"""Attacks on a shuffler: what whole messages show, counted or one by one, is no more than is printed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

from sfumato import AddNoise, Clip, Everyone, Mean, Relation, Round, Shuffler
from sfumato.account import accountant
from sfumato.account.event import Repeated
from sfumato.engine.keys import Keys
from sfumato.engine.slots import Slots
from sfumato.guarantee import guarantee
from sfumato.key import Key
from sfumato.pieces.law import Laplace
from sfumato.testing.round import check_scores
from sfumato.update import Layout
from tests.attacks.losses import Composed, Pair
from tests.attacks.semantics import Chosen


def round_of(scale: float, channel: Any) -> Round:
    """Everybody sends one number from -1 to 1 with Laplace noise: each message costs 2 / scale."""
    client = (Clip(1.0, 1), AddNoise(Laplace(scale)))
    return Round(sample=Everyone(Relation.REPLACE), local=Chosen(), client=client, channel=channel, aggregate=Mean(1.0))


def counted(scale: float, population: int, ones: int, threshold: float) -> np.ndarray:
    """The chances of how many messages come out above a threshold, if so many are +1 and the others -1: exactly."""

    def above(value: float) -> float:
        return (
            math.exp(-(threshold - value) / scale) / 2
            if threshold > value
            else 1 - math.exp((threshold - value) / scale) / 2
        )

    places = np.arange(population + 1)
    both = [binom.pmf(places, many, above(value)) for many, value in ((ones, 1.0), (population - ones, -1.0))]
    return np.convolve(*both)[: population + 1]


@pytest.mark.parametrize(("scale", "population"), [(4.0, 30), (2.0, 101), (0.7, 2000)])
@pytest.mark.parametrize("rounds", [1, 5])
def test_counting_messages_shows_no_more_than_is_printed(scale: float, population: int, rounds: int) -> None:
    """The observer is one of the clients, whose own message is subtracted; the others are where they help most."""
    proof = round_of(scale, Shuffler()).derive(population=population, dimension=1).primary
    alone = round_of(scale, Shuffler()).derive(population=2, dimension=1).primary.world
    best = 0.0
    for delta in (1e-6, 1e-3):
        event = Repeated(proof.world, rounds)
        printed = guarantee(event, delta, unit=proof.unit, relation=proof.relation, view="x").epsilon
        assert printed is not None and printed < accountant().epsilon(Repeated(alone, rounds), delta)
        for threshold in (-1.0, 0.0, 1.0) if rounds == 1 else (0.0,):
            for others in (0, population // 2, population - 2) if rounds == 1 else (0,):
                one, two = (counted(scale, population - 1, others + mine, threshold) for mine in (1, 0))
                kept = np.maximum(one, two) > 1e-290
                for pair in (Pair(one[kept], two[kept]), Pair(two[kept], one[kept])):
                    attained = Composed([pair] * rounds).epsilon(delta)
                    assert attained <= printed, (threshold, others, delta)
                    best = max(best, attained / printed)
    assert best > 0.2  # the attack is not blind


@dataclass(frozen=True)
class DoesNotPermute(Shuffler):
    """Credited as a shuffler, and passes messages on as they came."""

    def order(self, count: int, key: Key) -> np.ndarray:
        return np.arange(count)


def places(channel: Any, value: float, draws: int = 400, population: int = 1000) -> np.ndarray:
    """What the server sees in the place where the victim's message came in; the others all send -1."""
    round = round_of(1.0, channel)
    slots = Slots(
        round, round.derive(population=population, dimension=1).primary, Layout(("weight",), (torch.Size([1]),))
    )
    rows = torch.full((population, 1), -1.0)
    rows[7] = value
    found = np.empty(draws)
    for draw in range(draws):
        keys = Keys.of(Key.from_seed(5).child("draw", number=draw, value=str(value)))
        opening = slots.open(0, keys.opening(0))
        noisy = slots.messages(
            rows[6:9], torch.ones(3), [keys.client(client, round=0) for client in (6, 7, 8)], opening, (6, 7, 8)
        )
        order = round.channel.order(population, keys.channel)
        assert order is not None
        here = int(order[7])  # whose message stands where the victim's came in
        own = noisy[1] if here == 7 else noisy[0]  # all others have the same law
        found[draw] = float(own)
    return found


def test_the_place_of_a_message_tells_nothing() -> None:
    event = round_of(1.0, Shuffler()).derive(population=1000, dimension=1).primary.world
    scores = [places(Shuffler(), value) for value in (-1.0, 1.0)]
    check_scores("reading the victim's place", scores, event, (1e-3, 0.05), 1 - 1e-6)


def test_a_shuffler_that_does_not_permute_is_caught() -> None:
    event = round_of(1.0, DoesNotPermute()).derive(population=1000, dimension=1).primary.world
    scores = [places(DoesNotPermute(), value) for value in (-1.0, 1.0)]
    with pytest.raises(AssertionError, match="reading the victim's place shows epsilon"):
        check_scores("reading the victim's place", scores, event, (1e-3, 0.05), 1 - 1e-6)
