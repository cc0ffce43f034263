"""Direct tests of noise, cohorts and canaries: sound rounds pass, each sabotage fails, and p-values are what they say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from sfumato import (
    AdaptiveClip,
    AddNoise,
    Clip,
    ClipPerLayer,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    LaplacianSmoothing,
    Mean,
    NoiseShare,
    Poisson,
    Relation,
    Round,
    SecureSum,
    SharedMask,
    secure,
)
from sfumato.account.event import Unit
from sfumato.audit import verdict
from sfumato.audit.asked import Asked
from sfumato.audit.bounds import BY_SCORES, BY_TESTS, CERTAIN
from sfumato.audit.direct_tests import (
    LEVEL,
    DirectTest,
    _binomial,
    _dkw,
    _gamma,
    _lags,
    _least,
    _over_rounds,
    _pairs,
    count_p_value,
    direct_tests,
    summary,
)
from sfumato.audit.observation import observe
from sfumato.audit.verdict import How
from sfumato.key import Key
from sfumato.pieces.context import Context
from sfumato.pieces.law import Laplace
from sfumato.pieces.mean import RealisedMean
from sfumato.pieces.protocol import Turn
from sfumato.pieces.staircase import Staircase
from tests.audit.table import MISSED, Sabotage, by_direct_tests, sabotages
from tests.helpers import dp_round, unchecked
from tests.sabotage.test_sabotage import Wraps

KEY = Key.from_seed(4)


def _tested(round: Round, dimension: int = 8, rounds: int = 3, population: int = 40) -> tuple[DirectTest, ...]:
    with unchecked():
        return direct_tests(observe(Asked(round, population, dimension, rounds, round.unit), KEY))


def _failed(round: Round, **where: int) -> set[tuple[str, str]]:
    return {(one.of, one.statement) for one in _tested(round, **where) if one.failed}


def _records(law: Any, **changed: Any) -> Round:
    facts: dict[str, Any] = {"sample": Poisson(0.5), "aggregate": RealisedMean(), "unit": Unit.RECORD, **changed}
    return Round(local=DpSgd(2, facts.pop("batch", Poisson(0.3)), 20, 1.0, law), **facts)


def _shares(law: Any) -> Round:
    return dp_round(
        sample=FixedSize(4), client=(Clip(1.0), NoiseShare(law, 3)), channel=SecureSum(), aggregate=Mean(4.0), server=()
    )


def _messages(law: Any) -> Round:
    return dp_round(sample=Poisson(0.5, Relation.REPLACE), client=(Clip(1.0), AddNoise(law)), server=())


SLOTS: dict[str, Callable[[Any], Round]] = {
    "server": lambda law: dp_round(server=(AddNoise(law),)),
    "client": _messages,
    "channel": _shares,
    "local": _records,
}


@pytest.mark.parametrize("slot", SLOTS)
def test_a_sound_round_passes_wherever_its_noise_is_added(slot: str) -> None:
    found = _tested(SLOTS[slot](Gaussian(2.0)))
    assert not any(one.failed for one in found)
    assert {one.of for one in found} >= {"noise", "cohorts"}
    assert ("canaries" in {one.of for one in found}) == (slot != "local")


SOUND = {
    "Laplace": dp_round(client=(Clip(1.0, order=1),), server=(AddNoise(Laplace(1.0)),)),
    "Laplace in L2": dp_round(sample=Everyone(), server=(AddNoise(Laplace(1.0, order=2)),)),
    "staircase": dp_round(sample=Everyone(), client=(Clip(1.0, order=1),), server=(AddNoise(Staircase(0.7)),)),
    "fixed": dp_round(sample=FixedSize(8)),
    "fixed add/remove": dp_round(sample=FixedSize(8, Relation.ADD_REMOVE)),
    "exact": secure(dp_round()),
    "exact steps": secure(_records(Gaussian(2.0))),
    "adaptive clip": dp_round(client=(AdaptiveClip(0.3),)),
    "adaptive clip, zero-out": dp_round(
        sample=Everyone(Relation.ZERO_OUT), client=(AdaptiveClip(0.3, bit_weight=1.0),)
    ),
    "masked": dp_round(client=(SharedMask(0.5), Clip(1.0))),
    "clipped per layer": dp_round(client=(ClipPerLayer((1.0,)),)),
    "smoothed": dp_round(server=(LaplacianSmoothing(0.5), AddNoise(Gaussian(1.0)))),
    "fixed batches": _records(Gaussian(2.0), batch=FixedSize(4)),
}


@pytest.mark.parametrize("name", SOUND)
def test_other_sound_rounds_pass(name: str) -> None:
    found = _tested(SOUND[name])
    assert found and not any(one.failed for one in found)


@dataclass(frozen=True)
class Less(Gaussian):
    """Draws three quarters of what it states."""

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        return super().sample(shape, 0.75 * stddev, key)


class Uniform(Gaussian):
    """Of the stated standard deviation, with no tails."""

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        uniform = key.uniform(math.prod(shape)).reshape(shape)
        return torch.from_numpy((2.0 * uniform - 1.0) * math.sqrt(3.0) * stddev)


class OneSign(Gaussian):
    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        return super().sample(shape, stddev, key).abs()


@pytest.mark.parametrize("law", [Less(2.0), Uniform(2.0), OneSign(2.0)], ids=lambda law: type(law).__name__)
@pytest.mark.parametrize("slot", SLOTS)
def test_other_noise_than_is_stated_fails_in_every_slot(slot: str, law: Gaussian) -> None:
    assert "noise" in {of for of, _ in _failed(SLOTS[slot](law))}


class OnEachCoordinate(Staircase):
    """Drawn on each coordinate by itself, of the same standard deviation."""

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        alone = (
            super(OnEachCoordinate, self).sample((1,), stddev, key.child("at", n=n)) for n in range(math.prod(shape))
        )
        return torch.cat(list(alone))


def test_a_staircase_that_is_not_drawn_jointly_fails() -> None:
    round = dp_round(sample=Everyone(), client=(Clip(1.0, order=1),), server=(AddNoise(OnEachCoordinate(0.3)),))
    assert any(of == "noise" for of, _ in _failed(round))


class SameNoiseInARun(Wraps):
    """Fresh in every run."""

    def __call__(self, value: torch.Tensor, context: Context) -> torch.Tensor:
        return value + self.noise(value, replace(context, key=context.stream_key(0)))


class SameNoiseTwice(Wraps):
    """Every other round of a run repeats the noise of the one before."""

    def __call__(self, value: torch.Tensor, context: Context) -> torch.Tensor:
        return value + self.noise(value, replace(context, key=context.stream_key(context.round // 2)))


class RepeatsAfterABuffer(Wraps):
    """The defect of 0.2.0: noise that repeats after 131,072 coordinates."""

    def __call__(self, value: torch.Tensor, context: Context) -> torch.Tensor:
        noise = self.noise(value, context)
        return value + noise[torch.arange(len(noise)) % 131_072]


class SilentOnOneCoordinate(Wraps):
    def __call__(self, value: torch.Tensor, context: Context) -> torch.Tensor:
        noise = self.noise(value, context)
        noise[len(noise) // 2] = 0.0
        return value + noise


def _wrapped(noise: type[Wraps]) -> Round:
    return dp_round(sample=Everyone(), server=(noise(),))


@pytest.mark.parametrize("noise", [SameNoiseInARun, SameNoiseTwice])
def test_noise_that_is_used_again_within_a_run_fails(noise: type[Wraps]) -> None:
    assert ("noise", "no two numbers at any distance are related") in _failed(_wrapped(noise), rounds=4)


def test_noise_that_repeats_after_a_buffer_fails_at_the_dimension_of_a_model() -> None:
    assert _failed(_wrapped(RepeatsAfterABuffer), dimension=200_000) == {
        ("noise", "no two numbers at any distance are related")
    }
    assert not _failed(_wrapped(RepeatsAfterABuffer), dimension=1000)


def test_one_coordinate_without_noise_fails_among_a_hundred_thousand() -> None:
    assert ("noise", "every coordinate has the stated scale") in _failed(
        _wrapped(SilentOnOneCoordinate), dimension=100_000
    )


class KeptForTheRun(Poisson):
    """Drawn once for each run."""

    def cohort(self, population: int, turn: Turn) -> np.ndarray:
        return self.draw(population, turn.run)


class InBlocks(Poisson):
    """Neighbours are drawn together."""

    def draw(self, population: int, key: Key) -> np.ndarray:
        pairs = Poisson(self.rate).draw(population // 2, key)
        return np.sort(np.concatenate([2 * pairs, 2 * pairs + 1]))


@pytest.mark.parametrize(
    ("sampler", "statement"),
    [(KeptForTheRun(0.2), "rounds are independent"), (InBlocks(0.2), "neighbours are drawn independently")],
    ids=["run", "blocks"],
)
def test_cohorts_that_depend_on_each_other_fail(sampler: Poisson, statement: str) -> None:
    assert ("cohorts", statement) in _failed(dp_round(sample=sampler))


class MoreThanItSays(Poisson):
    def draw(self, population: int, key: Key) -> np.ndarray:
        return Poisson(1.5 * self.rate).draw(population, key)


def test_batches_of_private_local_steps_are_tested() -> None:
    failed = [one for one in _tested(_records(Gaussian(2.0), batch=MoreThanItSays(0.3))) if one.failed]
    assert failed and all(one.of == "cohorts" and "records" in one.seen for one in failed)


@pytest.mark.parametrize("sabotage", sabotages(), ids=lambda one: one.name)
def test_an_audit_catches_the_sabotaged_pieces_but_those_that_are_listed(sabotage: Sabotage) -> None:
    caught = by_direct_tests(sabotage) not in ("", "does not run")
    assert caught == (sabotage.name not in MISSED)


def test_no_more_are_missed_than_may_be() -> None:
    assert len(sabotages()) - len(MISSED) >= 28


def test_a_failed_direct_test_makes_the_verdict() -> None:
    round = dp_round(sample=Everyone(), server=(AddNoise(Less(1.0)),))
    with unchecked():
        found = verdict.audit(Asked(round, 20, 50, 2, round.unit), How(KEY, 1e-5, runs=20))
    assert found.broken and found.bounds is None and any(one.failed for one in found.tests)
    assert found.to_json()["broken"] and any("FAILED" in line for line in found.lines())


def test_the_summary_says_what_was_tested_and_what_was_not() -> None:
    everyone = summary(_tested(dp_round(sample=Everyone())))
    assert [line.split(" ")[0] for line in everyone] == ["noise", "canaries", "canaries", "not"]
    assert everyone[-1] == "not tested: cohorts"
    assert not any(line.startswith("not tested") for line in summary(_tested(dp_round())))


def test_what_has_no_guarantee_is_not_tested() -> None:
    bare = replace(dp_round(server=(AddNoise(Less(1.0)),)), unproven=True)
    with unchecked():
        found = verdict.audit(Asked(bare, 20, 50, 2, bare.unit), How(KEY, 1e-5, runs=20))
    assert not found.direct_tests and not found.broken


# --- p-values --------------------------------------------------------------------------------------------------------------

_REPEATS = 1000


def _often(p_value: Callable[[np.random.Generator], float], at: float = 0.05) -> int:
    random = np.random.default_rng(7)
    return sum(p_value(random) <= at for _ in range(_REPEATS))


def _exponentials(random: np.random.Generator) -> Any:
    return random.exponential(size=60)


def _signs(random: np.random.Generator) -> Any:
    return random.choice((-1.0, 1.0), size=(6, 5))


def _cohorts(random: np.random.Generator, fixed: bool) -> Any:
    if fixed:
        return np.stack([[random.permutation(10) < 4 for _ in range(4)] for _ in range(6)])
    return random.random((6, 4, 10)) < 0.4


P_VALUES: dict[str, Callable[[np.random.Generator], float]] = {
    "counts": lambda random: float(count_p_value(random.binomial(40, 0.3), 40, 0.3)),
    "sums": lambda random: (lambda x: _gamma(x.sum(), x.sum(), 60))(_exponentials(random)),
    "distribution": lambda random: (lambda x: _dkw(x, x))(_exponentials(random)),
    "distances": lambda random: _lags(_signs(random)),
    "pairs": lambda random: _pairs(_signs(random)),
    "sizes": lambda random: _binomial(random.binomial(10, 0.4, size=50), 10, 0.4),
    "rounds": lambda random: _over_rounds(_cohorts(random, False), None, 0.4),
    "rounds of a fixed size": lambda random: _over_rounds(_cohorts(random, True), 4, 0.4),
}


@pytest.mark.parametrize("name", P_VALUES)
def test_a_p_value_is_small_as_rarely_as_it_says(name: str) -> None:
    """At most 5 % of the time, of which 1,000 times show 50 with a deviation of 7."""
    assert _often(P_VALUES[name]) <= 50 + 4 * 7


def test_all_tests_share_half_of_what_a_verdict_may_err() -> None:
    assert BY_TESTS + BY_SCORES == CERTAIN
    most = max(
        (_tested(_records(Gaussian(2.0), sample=FixedSize(8), batch=FixedSize(4))), _tested(dp_round())), key=len
    )
    assert len(most) * LEVEL <= BY_TESTS
    assert _least(0.1, np.array([0.01, 0.5])) == pytest.approx(0.03)
    assert _least(np.array([np.nan, 1.0])) == 0.0
