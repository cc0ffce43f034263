"""Known mistakes with messages: each is broken on purpose, and the laws see it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from sfumato import (
    AddNoise,
    Clip,
    Everyone,
    Gaussian,
    Median,
    ModeConnectivity,
    Plan,
    Relation,
    Round,
    Sgd,
    Shuffler,
    classification,
)  # fmt: skip
from sfumato.claim import Claim
from sfumato.engine.clients import Clients
from sfumato.engine.keys import Keys
from sfumato.engine.simulate import simulate
from sfumato.engine.slots import Slots
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.pieces.context import MessageContext
from sfumato.pieces.protocol import MessageAggregate
from sfumato.testing import check_round, check_shuffler
from sfumato.testing.round import _released, check_scores
from sfumato.update import Layout
from tests.helpers import linear, made_up_population
from tests.pieces import test_control_variates as variates
from tests.pieces import test_shuffler as shuffling


@dataclass(frozen=True)
class AsTheyCame(Shuffler):
    def order(self, count: int, key: Key) -> np.ndarray:
        return np.arange(count)


@dataclass(frozen=True)
class CutsTheDeck(Shuffler):
    """Every place is equally likely for every message, but neighbours stay neighbours."""

    def order(self, count: int, key: Key) -> np.ndarray:
        return np.roll(np.arange(count), int(key.integers(1)[0] % np.uint64(max(count, 1))))


@dataclass(frozen=True)
class AlwaysTheSame(Shuffler):
    def order(self, count: int, key: Key) -> np.ndarray:
        return Key.from_seed(0).permutations(1, count)[0]


@pytest.mark.parametrize("broken", [AsTheyCame(), CutsTheDeck(), AlwaysTheSame()], ids=lambda one: type(one).__name__)
def test_a_shuffler_that_does_not_shuffle(broken: Shuffler) -> None:
    with pytest.raises(AssertionError):
        check_shuffler(broken)


def test_an_engine_that_forgets_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shuffler, "order", AsTheyCame.order)
    with pytest.raises(AssertionError):
        shuffling.test_the_engine_passes_messages_on_in_that_order_and_without_senders()


@dataclass(frozen=True)
class EarlyMedian(MessageAggregate):
    """A median before the noise, credited with what a mean over `over` would have."""

    over: float = 9.0

    def combine(self, messages: torch.Tensor, context: MessageContext) -> torch.Tensor:
        return Median().combine(messages, context)

    def carry(self, claim: Claim) -> Claim:
        return replace(claim.scaled(1.0 / self.over), aggregated=True)


def medians(aggregate: Any, draws: int = 150) -> list[np.ndarray]:
    """Releases with a victim between four who send -1 and four who send +1: the victim is the median."""
    round = Round(
        sample=Everyone(Relation.REPLACE), local=Sgd(lr=0.1, epochs=1), client=(Clip(1.0),), aggregate=aggregate,
        server=(AddNoise(Gaussian(2.0)),),
    )  # fmt: skip
    slots = Slots(round, round.derive(population=9, dimension=3).primary, Layout(("weight",), (torch.Size([3]),)))
    found = []
    for value in (-1.0, 1.0):
        rows = torch.zeros(9, 3)
        rows[:, 0] = torch.tensor([-1.0] * 4 + [1.0] * 4 + [value])
        released = []
        for draw in range(draws):
            keys = Keys.of(Key.from_seed(3).child("draw", number=draw, value=str(value)))
            opening, sizes = slots.open(0, keys.opening(0)), torch.ones(9)
            own = [keys.client(client, round=0) for client in range(9)]
            messages = slots.messages(rows, sizes, own, opening, range(9))
            released.append(float(_released(slots, messages, sizes, opening, keys)[0]))
        found.append(np.array(released))
    return [*found, slots.proof.world]  # type: ignore[list-item]


def test_a_median_that_is_credited_before_it_is_paid() -> None:
    absent, present, event = medians(EarlyMedian())
    with pytest.raises(AssertionError, match="the middle shows epsilon"):
        check_scores("the middle", [absent, present], event, (1e-3, 0.05), 1 - 1e-6)  # type: ignore[arg-type]


def test_a_median_of_paid_messages_holds() -> None:
    check_round(
        Round(
            sample=Everyone(Relation.REPLACE), local=Sgd(lr=0.1, epochs=1), client=(Clip(1.0), AddNoise(Gaussian(2.0))),
            aggregate=Median(), channel=Shuffler(),
        ),
        draws=100,
    )  # fmt: skip


def test_a_control_variate_from_what_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Clients._stays

    def raw(self: Clients, start: Any, ids: Any, rows: torch.Tensor, messages: torch.Tensor) -> Any:
        return right(self, start, ids, rows, rows)

    monkeypatch.setattr(Clients, "_stays", raw)
    with pytest.raises(AssertionError):
        variates.test_it_is_the_algorithm_in_plain_loops(Plan())


@dataclass(frozen=True)
class Unasked(ModeConnectivity):
    """Does not ask whether its data are public."""

    def carry(self, claim: Claim) -> Claim:
        return Median().carry(claim)


def test_mode_connectivity_on_private_data_does_not_even_run() -> None:
    people = made_up_population([9, 8, 7])
    private = people.client(0).train
    round = Round(
        sample=Everyone(Relation.REPLACE), local=Sgd(lr=0.1, epochs=1), client=(Clip(1.0), AddNoise(Gaussian(2.0))),
        aggregate=Unasked(private),
    )  # fmt: skip
    with pytest.raises(BadValue, match="needs PublicData"):
        simulate(round, people, linear(), classification(3), rounds=1, seed=0)
