"""Each known mistake as a broken piece. The laws must fail on every one: these are the tests of the tests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from sfumato import AddNoise, Clip, FixedSize, Gaussian, Mean, Poisson, UnsoundRound, WeightByExamples
from sfumato.account.event import Event, FixedSizeSampled, PoissonSampled, Relation
from sfumato.claim import Claim, Reach, Release
from sfumato.key import Key
from sfumato.pieces.context import Context
from sfumato.pieces.protocol import ClientPiece, ServerPiece
from sfumato.testing import check_noise, check_piece, check_round, check_sampler
from tests.helpers import dp_round

Tensor = torch.Tensor


class States(ClientPiece):
    """States what `Clip(norm)` states."""

    def __init__(self, norm: float) -> None:
        self.norm = norm

    def carry(self, claim: Claim) -> Claim:
        return Clip(self.norm).carry(claim)


class ClipsNothing(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        return rows


class LetsNanPass(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        norms = rows.norm(dim=1, keepdim=True)
        return rows * (self.norm / norms).clamp(max=1.0)


class LetsInfinityPass(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        norms = rows.double().norm(dim=1, keepdim=True)
        factor = torch.where(norms.isfinite(), (self.norm / (norms * 1.001)).clamp(max=1.0), torch.ones_like(norms))
        return (rows.double() * factor).float()


class ClipsEachTensorAlone(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        if rows.shape[1] < 2:
            return Clip(self.norm)(rows, context)
        half = rows.shape[1] // 2
        return torch.cat([Clip(self.norm)(part, context) for part in (rows[:, :half], rows[:, half:])], dim=1)


class ClipsEachCoordinate(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        return torch.nan_to_num(rows).clamp(-self.norm, self.norm)


class ClipsTheMeanNorm(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        rows = torch.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
        return (rows.double() * (self.norm / rows.double().norm(dim=1).mean()).clamp(max=1.0)).float()


class ClipsByTheLargestRow(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        rows = torch.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0).double()
        return (rows * (self.norm / rows.norm(dim=1).max() / 1.001)).float()


class ShrinksTooLittle(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        rows = torch.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
        return rows * (self.norm / rows.double().norm(dim=1, keepdim=True)).clamp(max=1.0).float()


class ClipsTwiceInPlace(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        found = Clip(self.norm)(rows, context)
        return found.mul_(0.5) if context.spare else found


class ClipsInPlace(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        rows.copy_(Clip(self.norm)(rows, context))
        return rows


class WeighsByExamplesWithoutSaying(States):
    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        assert context.sizes is not None
        return Clip(self.norm)(rows, context) * context.sizes[:, None]


BROKEN_CLIPS = [
    ClipsNothing, LetsNanPass, LetsInfinityPass, ClipsEachTensorAlone, ClipsEachCoordinate, ClipsTheMeanNorm,
    ClipsByTheLargestRow, ShrinksTooLittle, ClipsInPlace, ClipsTwiceInPlace, WeighsByExamplesWithoutSaying,
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN_CLIPS)
def test_broken_clips_are_caught(broken: type[States]) -> None:
    with pytest.raises(AssertionError):
        check_piece(broken(0.3))


@dataclass(frozen=True)
class Wraps(ServerPiece):
    """States what the sound noise states."""

    sound: AddNoise = field(default_factory=lambda: AddNoise(Gaussian(1.0)))

    def carry(self, claim: Claim) -> Claim:
        return self.sound.carry(claim)

    def noise(self, value: Tensor, context: Context) -> Tensor:
        return self.sound(torch.zeros_like(value), context)


class TwoThirdsOfTheNoise(Wraps):
    def __call__(self, value: Tensor, context: Context) -> Tensor:
        return value + self.noise(value, context) * 2 / 3


class TooMuchNoise(Wraps):
    def __call__(self, value: Tensor, context: Context) -> Tensor:
        return value + self.noise(value, context) * 3 / 2


class NoisesHalfTheCoordinates(Wraps):
    def __call__(self, value: Tensor, context: Context) -> Tensor:
        noise = self.noise(value, context)
        return value + torch.where(torch.arange(len(value)) % 2 == 0, noise, torch.zeros_like(noise))


class ForgetsTheLastLayer(Wraps):
    def __call__(self, value: Tensor, context: Context) -> Tensor:
        noise = self.noise(value, context)
        noise[-len(value) // 10 :] = 0
        return value + noise


class SameNoiseEveryRound(Wraps):
    def __call__(self, value: Tensor, context: Context) -> Tensor:
        return value + self.noise(value, replace(context, key=Key.from_seed(0)))


class OneNumberForAllCoordinates(Wraps):
    def __call__(self, value: Tensor, context: Context) -> Tensor:
        return value + self.noise(value, context)[0]


class RepeatsABlock(Wraps):
    def __call__(self, value: Tensor, context: Context) -> Tensor:
        half = len(value) // 2
        noise = self.noise(value, context)
        return value + torch.cat([noise[:half], noise[: len(value) - half]])


class NoiseOfTheNextClip(Wraps):
    def __call__(self, value: Tensor, context: Context) -> Tensor:
        return value + self.noise(value, replace(context, claim=context.claim.scaled(0.8)))


BROKEN_NOISES = [
    TwoThirdsOfTheNoise, TooMuchNoise, NoisesHalfTheCoordinates, ForgetsTheLastLayer, SameNoiseEveryRound,
    OneNumberForAllCoordinates, RepeatsABlock, NoiseOfTheNextClip,
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN_NOISES)
def test_broken_noises_are_caught(broken: type[Wraps]) -> None:
    with pytest.raises(AssertionError):
        check_noise(broken())


class ShuffledCalledPoisson(Poisson):
    """Fixed cohorts, accounted as independent draws."""

    def draw(self, population: int, key: Key) -> np.ndarray:
        return FixedSize(round(self.rate * population)).draw(population, key)


class TakesTurns(FixedSize):
    def draw(self, population: int, key: Key) -> np.ndarray:
        number = int(key.path.rpartition("=")[2])
        return (np.arange(self.size) + number * self.size) % population


class SameCohortEveryRound(FixedSize):
    def draw(self, population: int, key: Key) -> np.ndarray:
        return super().draw(population, Key.from_seed(1))


class DrawsMoreThanItSays(Poisson):
    def draw(self, population: int, key: Key) -> np.ndarray:
        return Poisson(min(1.0, 2 * self.rate)).draw(population, key)


class DrawsEveryone(Poisson):
    def draw(self, population: int, key: Key) -> np.ndarray:
        return np.arange(population)


class DrawsSomeTwice(Poisson):
    def draw(self, population: int, key: Key) -> np.ndarray:
        return np.repeat(super().draw(population, key), 2)


class PrefersTheFirst(FixedSize):
    def draw(self, population: int, key: Key) -> np.ndarray:
        return np.sort(super().draw(population // 2, key))


class FixedAccountedAsPoisson(FixedSize):
    def amplified(self, release: Release, claim: Claim) -> Event:
        return PoissonSampled(self.size / claim.population, release(claim.row))


class UnderstatesItsRate(FixedSize):
    def amplified(self, release: Release, claim: Claim) -> Event:
        return FixedSizeSampled(self.chance(claim) / 2, release(claim.rows_apart), claim.relation)


class ForgetsThatOneIsDisplaced(FixedSize):
    def reach(self, claim: Claim, seen: bool) -> Reach:
        return claim.row


class ForgetsWhatTheCuriousKnow(FixedSize):
    def amplified(self, release: Release, claim: Claim) -> Event:
        return FixedSizeSampled(self.chance(claim), release(claim.rows_apart), claim.relation)


BROKEN_SAMPLERS = [
    ShuffledCalledPoisson(0.2), TakesTurns(8), SameCohortEveryRound(8), DrawsMoreThanItSays(0.2), DrawsSomeTwice(0.2),
    PrefersTheFirst(8), FixedAccountedAsPoisson(8), UnderstatesItsRate(8), ForgetsThatOneIsDisplaced(8),
    ForgetsWhatTheCuriousKnow(8, Relation.ADD_REMOVE),
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN_SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_broken_samplers_are_caught(broken: object) -> None:
    with pytest.raises(AssertionError):
        check_sampler(broken)


class MeanOverTheRealisedCohort(Mean):
    def finish(self, total: Tensor, weight: float) -> Tensor:
        return total / max(weight, 1.0)


class SumCalledMean(Mean):
    def finish(self, total: Tensor, weight: float) -> Tensor:
        return total


class UncappedWeights(WeightByExamples):
    """Stated as if it were capped."""

    def __call__(self, rows: Tensor, context: Context) -> Tensor:
        assert context.sizes is not None
        return rows * context.sizes[:, None]


@pytest.mark.parametrize(
    "round",
    [
        dp_round(client=(ClipsNothing(1.0),)),
        dp_round(server=(TwoThirdsOfTheNoise(AddNoise(Gaussian(0.5))),), aggregate=SumCalledMean(3)),
        dp_round(aggregate=SumCalledMean(3)),
        dp_round(client=(Clip(1.0), UncappedWeights(cap=1))),
        dp_round(sample=DrawsEveryone(0.05)),
        dp_round(sample=ForgetsThatOneIsDisplaced(3)),
        dp_round(aggregate=MeanOverTheRealisedCohort(50)),
    ],
    ids=["clip", "noise", "sum", "weights", "rate", "displaced", "realised"],
)
def test_broken_rounds_are_caught_by_an_attack(round: object) -> None:
    with pytest.raises(AssertionError):
        check_round(round, draws=1500)  # type: ignore[arg-type]


def test_a_piece_that_states_nothing_is_refused() -> None:
    class Silent:
        def __call__(self, rows: Tensor, context: Context) -> Tensor:
            return rows

    with pytest.raises(UnsoundRound, match="states nothing"):
        dp_round(client=(Clip(1.0), Silent()))
