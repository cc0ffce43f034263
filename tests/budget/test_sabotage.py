"""Known mistakes with clients' own settings, as broken pieces: the laws must fail on every one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean

import numpy as np
import pytest
import torch

from sfumato import Clip, ClipPerClient, FixedSize, PerClient, PoissonPerClient, Presence, UnsoundRound
from sfumato.account.auto import Auto
from sfumato.account.event import ByClient, Event, GaussianEvent, Real
from sfumato.account.inside import each_client
from sfumato.claim import Claim, Reach
from sfumato.local.task import Task
from sfumato.pieces.context import Context
from sfumato.pieces.protocol import Turn
from sfumato.testing import check_piece, check_sampler
from tests.budget.laws import check_largest, check_no_attack, check_own_noise
from tests.budget.test_attack import OWN, round_of

OWN_NORMS = {1: Clip(0.02)}


@dataclass(frozen=True)
class ClipsByAnothers(ClipPerClient):
    """Each row is clipped by its neighbour's norm."""

    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        return super().__call__(rows, replace(context, ids=tuple(client + 1 for client in context.ids)))


@dataclass(frozen=True)
class NoiseByOnesOwn(ClipPerClient):
    """States a client's own norm as everybody's, so that noise would be accounted as a multiple of it."""

    def carry(self, claim: Claim) -> Claim:
        return self.of(claim.client).carry(claim)


@dataclass(frozen=True)
class StatesAnothers(ClipPerClient):
    """Clips as it should, and states the smallest norm for everybody."""

    def carry(self, claim: Claim) -> Claim:
        return super().carry(claim).narrowed(min(self._clips, key=lambda clip: clip.norm).carry(claim).row)


@dataclass(frozen=True)
class DrawsAllAlike(PoissonPerClient):
    """Draws everybody at one rate."""

    def cohort(self, population: int, turn: Turn) -> np.ndarray:
        return PoissonPerClient(self.default).cohort(population, turn)


@dataclass(frozen=True)
class NeverStops(PoissonPerClient):
    """Forgets the last rounds."""

    def cohort(self, population: int, turn: Turn) -> np.ndarray:
        return super().cohort(population, replace(turn, round=0))


@dataclass(frozen=True)
class NoiseOfAnother(PerClient):
    """Trains each client with its neighbour's noise."""

    def train(self, task: Task) -> torch.Tensor:
        return super().train(replace(task, ids=[client + 1 for client in task.ids]))


def test_a_row_that_is_clipped_by_anothers_norm_is_found() -> None:
    with pytest.raises(AssertionError, match="for client 1, whose row has"):
        check_piece(ClipsByAnothers(Clip(1.0), OWN_NORMS))


def test_noise_that_follows_ones_own_norm_is_refused() -> None:
    with pytest.raises(UnsoundRound, match="what is drawn for one would not be what is accounted for another"):
        round_of(PoissonPerClient(Presence(0.5)), NoiseByOnesOwn(Clip(1.0), OWN_NORMS))


def test_a_norm_that_is_not_ones_own_is_attacked() -> None:
    with pytest.raises(AssertionError, match="is attained"):
        check_no_attack(
            round_of(PoissonPerClient(Presence(0.5)), StatesAnothers(Clip(1.0), {0: Clip(1.0), **OWN_NORMS})), 3, 1
        )


def test_a_displacement_by_ones_own_norm_alone_is_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(claim: Claim) -> Reach:
        return claim.row.scaled(2.0)

    monkeypatch.setattr(Claim, "displaced", property(twice))
    with pytest.raises(AssertionError, match="client 1: .* is attained"):
        check_no_attack(round_of(FixedSize(2, curious=0), ClipPerClient(Clip(1.0), OWN_NORMS)), 4, 1)


@pytest.mark.parametrize("broken", [DrawsAllAlike, NeverStops])
def test_draws_that_are_not_ones_own_are_found(broken: type[PoissonPerClient]) -> None:
    with pytest.raises(AssertionError, match="was drawn"):
        check_sampler(broken(Presence(0.5), {3: Presence(0.5, rounds=100), 4: Presence(0.1)}))


def test_a_clients_noise_that_is_anothers_is_found() -> None:
    with pytest.raises(AssertionError, match="draws noise of"):
        check_own_noise(NoiseOfAnother(OWN.default, OWN.own), 3)


def test_a_mean_in_place_of_the_largest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    event = ByClient(GaussianEvent(2.0), (((1,), GaussianEvent(1.0)),))
    check_largest(event, 3, 1e-5)

    def average(self: Auto, event: Event, delta: Real) -> float:
        return mean(self.choose(own).epsilon(own, delta) for own in each_client(event))

    monkeypatch.setattr(Auto, "epsilon", average)
    with pytest.raises(AssertionError, match="was spent on one"):
        check_largest(event, 3, 1e-5)
