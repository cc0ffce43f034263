"""Known mistakes in private local training. `check_records` must fail on every one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from sfumato import FixedSize, Gaussian, Key, Poisson
from sfumato.account.event import FixedSizeSampled, GaussianEvent, Repeated
from sfumato.claim import Claim
from sfumato.testing import check_records
from tests.local.slow_dp_sgd import SlowDpSgd

FIXED: dict[str, Any] = {"steps": 2, "batch": FixedSize(3), "records": 9, "law": Gaussian(1.0)}
POISSON: dict[str, Any] = {"steps": 2, "batch": Poisson(0.3), "records": 9, "law": Gaussian(1.0)}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class ClipsNothing(SlowDpSgd):
    def clip_one(self, gradient: Tensor) -> Tensor:
        return gradient.nan_to_num()


class LetsNanPass(SlowDpSgd):
    def clip_one(self, gradient: Tensor) -> Tensor:
        return gradient * (self.clip / gradient.norm()).clamp(max=1.0)


class ClipsTheMean(SlowDpSgd):
    def add(self, gradients: list[Tensor], dimension: int) -> Tensor:
        total = sum(gradients, torch.zeros(dimension, dtype=torch.float64)).nan_to_num()
        return total * (self.clip * len(gradients) / total.norm().clamp(min=1e-9)).clamp(max=1.0)


class ClipsToTwice(SlowDpSgd):
    def clip_one(self, gradient: Tensor) -> Tensor:
        return super().clip_one(gradient) * 2


class TwoThirdsOfTheNoise(SlowDpSgd):
    def noise(self, key: Key, dimension: int, drawn: int) -> Tensor:
        return super().noise(key, dimension, drawn) * 2 / 3


class SameNoiseEveryStep(SlowDpSgd):
    def noise(self, key: Key, dimension: int, drawn: int) -> Tensor:
        return super().noise(Key.from_seed(3), dimension, drawn)


class OneNumberForAllCoordinates(SlowDpSgd):
    def noise(self, key: Key, dimension: int, drawn: int) -> Tensor:
        return super().noise(key, 1, drawn).expand(dimension)


class NoNoiseWithoutRecords(SlowDpSgd):
    def noise(self, key: Key, dimension: int, drawn: int) -> Tensor:
        return super().noise(key, dimension, drawn) * (1.0 if drawn else 0.0)


class DividesByTheRealisedBatch(SlowDpSgd):
    def over(self, drawn: int) -> float:
        return max(drawn, 1)


class SameBatchEveryStep(SlowDpSgd):
    def draw(self, records: int, key: Key, step: int) -> list[int]:
        return super().draw(records, Key.from_seed(1), step)


class ShuffledEpochs(SlowDpSgd):
    def draw(self, records: int, key: Key, step: int) -> list[int]:
        size = self.batch.size  # type: ignore[union-attr]
        per_epoch = records // size
        order = Key.from_seed(step // per_epoch).permutations(1, records)[0]
        return list(order.reshape(per_epoch, size)[step % per_epoch].tolist())


class DrawsMoreThanItSays(SlowDpSgd):
    def draw(self, records: int, key: Key, step: int) -> list[int]:
        return list(Poisson(0.5).draw(records, key).tolist())


class FixedCalledPoisson(SlowDpSgd):
    def draw(self, records: int, key: Key, step: int) -> list[int]:
        return list(FixedSize(3).draw(records, key).tolist())


class UnderstatesItsRate(SlowDpSgd):
    def carry(self, claim: Claim) -> Claim:
        step = FixedSizeSampled(0.2, GaussianEvent(self.law.noise_multiplier / 2))
        return replace(super().carry(claim), world=Repeated(step, self.steps))


class ForgetsThatASwapMovesTwice(SlowDpSgd):
    def carry(self, claim: Claim) -> Claim:
        step = FixedSizeSampled(3 / 9, GaussianEvent(self.law.noise_multiplier))
        return replace(super().carry(claim), world=Repeated(step, self.steps))


class TakesOneStepMore(SlowDpSgd):
    def how_often(self) -> int:
        return self.steps + 1


BROKEN = [
    ClipsNothing(**FIXED), LetsNanPass(**FIXED), ClipsTheMean(**FIXED), ClipsToTwice(**FIXED), TwoThirdsOfTheNoise(**FIXED),
    SameNoiseEveryStep(**FIXED), OneNumberForAllCoordinates(**FIXED), NoNoiseWithoutRecords(**POISSON),
    DividesByTheRealisedBatch(**POISSON), SameBatchEveryStep(**FIXED), ShuffledEpochs(**FIXED), DrawsMoreThanItSays(**POISSON),
    FixedCalledPoisson(**POISSON), UnderstatesItsRate(**FIXED), ForgetsThatASwapMovesTwice(**FIXED), TakesOneStepMore(**FIXED),
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN, ids=lambda piece: type(piece).__name__)
def test_broken_training_is_caught(broken: SlowDpSgd) -> None:
    with pytest.raises(AssertionError):
        check_records(broken, draws=200)


@pytest.mark.parametrize("facts", [FIXED, POISSON], ids=["fixed", "poisson"])
def test_the_slow_twin_is_sound(facts: dict[str, Any]) -> None:
    check_records(SlowDpSgd(**facts), draws=200)
