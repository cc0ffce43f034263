"""What a review by promise found: a printed number, or a sentence, that an explicit attack exceeds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sfumato import AddNoise, Population, Relation
from sfumato.account import accountant
from sfumato.account.event import FixedSizeSampled, GaussianEvent, LaplaceEvent, PoissonSampled, Repeated, Unit
from sfumato.account.loss_grid import grid
from sfumato.account.noises import GaussianNoise
from sfumato.account.pairs import Cells, Plain
from sfumato.claim import Claim, Reach
from sfumato.errors import BadValue, CannotAccount
from sfumato.key import Key
from sfumato.ledger.spent import Cost, Costs, total
from tests.helpers import dp_round


@pytest.mark.parametrize(("noise", "least"), [(1.0233, 54.1), (1.0244, 54.0), (2.0589, 10.0)])
def test_a_fixed_size_never_costs_nothing(noise: float, least: float) -> None:
    """A cell one digit wide had a mass that was no number, and was left out: epsilon 0 was printed."""
    event = Repeated(FixedSizeSampled(10 / 99, GaussianEvent(noise / 2)), 300)
    assert accountant().epsilon(event, 1e-5) > least
    assert accountant().epsilon(event, 1e-5) == pytest.approx(
        accountant().epsilon(Repeated(FixedSizeSampled(10 / 99, GaussianEvent(noise / 2 + 1e-5)), 300), 1e-5), rel=1e-3
    )


def test_more_noise_never_costs_more() -> None:
    rng = random.Random(4)
    for _ in range(150):
        law, rate, times = (
            rng.choice([GaussianEvent, LaplaceEvent]),
            rng.choice([0.01, 0.1, 0.3]),
            rng.choice([1, 8, 300]),
        )
        noise, delta = rng.uniform(0.3, 4.0), rng.choice([1e-3, 1e-5])
        less, more = (
            accountant().epsilon(Repeated(FixedSizeSampled(rate, law(size)), times), delta)
            for size in (noise, noise * 1.0005)
        )
        assert more * (1 - 1e-6) <= less <= more * 1.02 + 1e-6, (law, rate, times, noise, delta)


class Leaking(Plain):
    """Loses a cell."""

    def cells(self, cuts: Any) -> Cells:
        found = super().cells(cuts)
        found.log_p[len(cuts) // 2] = -np.inf
        return found


def test_masses_that_do_not_add_up_are_refused() -> None:
    grid(Plain(GaussianNoise(1.0)), 0.01, 0.05)
    with pytest.raises(CannotAccount, match="do not add up"):
        grid(Leaking(GaussianNoise(1.0)), 0.01, 0.05)


def test_a_client_that_is_not_there_pulls_no_other_in(tmp_path: Path) -> None:
    for name in "abc":
        torch.save({"x": torch.ones(2, 3), "y": torch.zeros(2)}, tmp_path / f"{name}.pt")
    people = Population.from_folder(tmp_path)
    with pytest.raises(BadValue, match="would depend on who is there"):
        people.declared(2)
    larger = people.declared(5)
    assert [larger.client(number).train.count for number in range(5)] == [2, 2, 2, 0, 0]
    assert larger.identity == people.identity


class Boasts:
    """A law from outside, in a plain class, that draws next to nothing."""

    noise_multiplier = 1e-6

    def stddev(self, claim: Claim) -> float:
        return 1e-6 * claim.l2

    def distance(self, reach: Reach) -> float:
        return reach.l2

    def event(self, stddev: float, reach: Reach) -> GaussianEvent:
        return GaussianEvent(100.0)

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        return key.normal(*shape, stddev=stddev)

    def with_noise(self, noise_multiplier: float) -> Boasts:
        return self


def test_a_law_from_outside_is_named_whatever_class_it_is() -> None:
    assumed = dp_round(server=(AddNoise(Boasts()),)).derive(population=9, dimension=5).primary.assumptions
    assert any(words.startswith("as stated by") and "Boasts" in words for words in assumed)


def test_zero_out_of_both_samplers_adds_up_under_replace() -> None:
    """Their events speak of different pairs, which an accountant does not add."""
    swapped = Cost(Relation.REPLACE, PoissonSampled(0.1, GaussianEvent(0.5), Relation.REPLACE), None)
    poisson = Cost(Relation.ZERO_OUT, PoissonSampled(0.1, GaussianEvent(1.0)), None, swapped)
    fixed_swapped = Cost(Relation.REPLACE, FixedSizeSampled(0.1, GaussianEvent(0.5)), None)
    fixed = Cost(Relation.ZERO_OUT, FixedSizeSampled(0.1, GaussianEvent(0.5)), None, fixed_swapped)
    spent = total([(Costs({Unit.CLIENT: poisson}), 2), (Costs({Unit.CLIENT: fixed}), 3)], Unit.CLIENT)
    assert spent is not None and spent.relation is Relation.REPLACE
    assert accountant().epsilon(spent.world, 1e-5) > 0
