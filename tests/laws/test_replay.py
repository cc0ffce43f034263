"""Frozen noise shows sensitivity without any chance: sound rounds keep to what they state, broken pieces do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sfumato import AddNoise, Clip, Everyone, Gaussian, Mean, Round, Sgd
from sfumato.engine.keys import Keys
from sfumato.engine.slots import Slots
from sfumato.key import Key
from sfumato.testing import Pair, check_replay, pairs_of_rows, replay
from sfumato.testing.replay import flat, worst
from sfumato.update import Layout
from tests.sabotage.test_sabotage import BROKEN_CLIPS, ClipsInPlace, ClipsTwiceInPlace, ShrinksTooLittle

NORM, CLIENTS, DIMENSION = 0.3, 5, 6


def released_by(clip: Any) -> tuple[Callable[[list[torch.Tensor]], torch.Tensor], float]:
    """A round as a mechanism of clients' rows, with one key for all runs; and the sensitivity that it states."""
    noise = AddNoise(Gaussian(1.0))
    round = Round(Everyone(), Sgd(lr=0.1, epochs=1), Mean(over=CLIENTS), client=(clip,), server=(noise,))
    proof = round.derive(population=CLIENTS, dimension=DIMENSION).primary
    slots = Slots(round, proof, Layout(("weight",), (torch.Size([DIMENSION]),)))
    keys = Keys.of(Key.from_seed(3))

    def mechanism(rows: list[torch.Tensor]) -> torch.Tensor:
        sizes, opening = torch.arange(1, len(rows) + 1), slots.open(0, keys.opening(0))
        own = [keys.client(client, round=0) for client in range(len(rows))]
        messages = slots.messages(torch.stack(rows), sizes, own, opening, range(len(rows)))
        return slots.release(*slots.weighted_sum(messages, sizes), opening, keys, slots.start())[0]

    assert proof.sensitivity is not None
    return mechanism, proof.sensitivity


@pytest.mark.parametrize("zero_out", [False, True])
def test_a_sound_round_moves_by_what_it_states_and_as_far(zero_out: bool) -> None:
    mechanism, stated = released_by(Clip(NORM))
    pairs = pairs_of_rows(DIMENSION, CLIENTS, zero_out)
    check_replay(mechanism, pairs, sensitivity=stated)
    assert worst(replay(mechanism, pairs)).l2 > 0.999 * stated


# These move by no more than is stated, or by rounding alone: other laws catch them.
_QUIET = {ClipsInPlace, ClipsTwiceInPlace, ShrinksTooLittle}


@pytest.mark.parametrize("broken", [broken for broken in BROKEN_CLIPS if broken not in _QUIET])
def test_broken_clips_move_further(broken: Any) -> None:
    mechanism, stated = released_by(broken(NORM))
    with pytest.raises(AssertionError, match="is stated"):
        check_replay(mechanism, pairs_of_rows(DIMENSION, CLIENTS), sensitivity=stated)


def test_a_mechanism_that_fails_or_changes_its_form_is_told_apart() -> None:
    def fails(rows: list[float]) -> list[float]:
        return [1.0 / sum(rows), 2.0]

    pairs = [Pair("zero", [1.0], [1.0, -1.0]), Pair("both", [0.0], [0.0, 0.0]), Pair("equal", [1.0], [0.5, 0.5])]
    zero, both, equal = replay(fails, pairs)
    assert zero.l2 == math.inf and zero.problem == "raises ZeroDivisionError"
    assert both.l2 == equal.l2 == 0.0
    (longer,) = replay(lambda rows: rows, [Pair("longer", [1.0], [1.0, 2.0])])
    assert longer.l2 == math.inf and "1 and one of 2" in longer.problem


def test_noise_that_is_not_frozen_shows_and_frozen_noise_cancels() -> None:
    draws = iter(range(100))
    drawn = [0]

    def mechanism(value: float) -> float:
        return value + drawn[0]

    def freeze() -> None:
        drawn[0] = 7

    pairs = [Pair("one", 0.0, 1.0)]
    assert replay(mechanism, pairs, freeze)[0].l1 == 1.0
    assert replay(lambda value: value + 10 * next(draws), pairs)[0].l1 == 11.0


def test_the_norm_is_that_of_the_order() -> None:
    pairs = [Pair("two", torch.zeros(4), torch.ones(4))]
    check_replay(lambda row: row, pairs, sensitivity=2.0)
    with pytest.raises(AssertionError, match="moves by 4"):
        check_replay(lambda row: row, pairs, sensitivity=2.0, order=1)


def test_releases_in_parts_are_one_row() -> None:
    assert flat([torch.ones(2, 2), [3.0], 4]).tolist() == [1.0, 1.0, 1.0, 1.0, 3.0, 4.0]


def test_what_is_not_finite_in_both_worlds_tells_nothing() -> None:
    moved = replay(lambda x: np.array([math.nan, -math.inf, 0.5 * x]), [Pair("one more", 0.0, 1.0)])
    assert moved[0].l2 == 0.5
    assert replay(lambda x: np.array([math.nan if x else 0.0]), [Pair("one more", 0.0, 1.0)])[0].l2 == math.inf
