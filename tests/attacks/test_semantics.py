"""Our reading of a round is the engine's.

Draws are counted. Real runs are made with every normal number replaced by its standard deviation, so that each release must be
one of the means of the law that is attacked, moved by as many standard deviations as it has noises in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import nn

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
    Plan,
    Poisson,
    Population,
    RealisedMean,
    Relation,
    Round,
    SecureSum,
    SharedMask,
    TopK,
    Unit,
    WeightByExamples,
    regression,
    simulate,
)  # fmt: skip
from sfumato.key import Key
from tests.attacks.losses import Array, Part
from tests.attacks.search import Shape, of_records
from tests.attacks.semantics import Chosen, Message, Semantics, cohorts
from tests.attacks.worlds import World, law

LAYERS = (2, 1)
VICTIM, OTHERS = 9.0 * np.array([0.9, 0.5, -0.4]), 0.3 * np.array([-1.0, 0.2, 0.9])


class TwoLayers(nn.Module):
    """A row of two coordinates and one more."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.cat([self.first, self.second])[:, None]


@pytest.fixture(autouse=True)
def _noise_is_its_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    def normal(self: Key, *shape: int, stddev: float = 1.0) -> torch.Tensor:
        return torch.full(shape, stddev, dtype=torch.float64)

    monkeypatch.setattr(Key, "normal", normal)


def releases(round: Round, clients: list[Any]) -> Array:
    """What each round of a real run adds to the parameters."""
    run = simulate(round, Population.from_list(clients), TwoLayers(), regression(), rounds=25, seed=3, plan=Plan())
    params = [np.zeros(3), *(progress.params.double().numpy() for progress in run)]
    return np.diff(np.array(params), axis=0)


def client(row: Array, records: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(row, dtype=torch.float32).expand(records, -1).clone(), torch.zeros(records, 1)


def semantics(round: Round, population: int) -> Semantics:
    """Seen by one who knows no client's part."""
    stddev = round.derive(population=population, dimension=3).primary.stddev
    return replace(Semantics.of(round, stddev), curious=0)


def mixture(round: Round, rows: tuple[Message, Message]) -> list[Part]:
    """What a release looks like with three others."""
    run = semantics(round, 4)
    victim, other = (run.message(row) for row in rows)
    return law(run, World(3, ((1.0, victim),), other), "world")


def possible(run: Semantics, parts: list[Part], factor: float = 1.0) -> Array:
    """The releases that can be, if each noise is `factor` times its standard deviation."""
    found = []
    for part in parts:
        own = run.message_stddev
        if own:  # a variance of k s^2 / n^2 for k messages with noise s, divided by n
            over = run.over if run.over is not None else own**2 / part.variance
            moved = part.variance * over / own
        else:
            moved = float(np.sqrt(part.variance))
        found.append(np.resize(part.mean or (0.0,), 3 if len(part.mean) < 3 else len(part.mean)) + factor * moved)
    return np.array(found)


def unexplained(values: Array, means: Array) -> int:
    """How many releases are none of the means."""
    return int((np.abs(values[:, None] - means[None]).max(axis=2).min(axis=1) > 2e-5).sum())


NOISE = (AddNoise(Gaussian(0.7)),)
AT_CLIENT = (Clip(1.0), AddNoise(Gaussian(0.8)))
CASES: dict[str, dict[str, Any]] = {
    "poisson": {"sample": Poisson(0.4)},
    "fixed size": {"sample": FixedSize(2)},
    "everyone": {"sample": Everyone()},
    "layers": {"client": (ClipPerLayer((1.0, 0.5)),)},
    "weights": {"client": (Clip(1.0), WeightByExamples(cap=4))},
    "weights before the clip": {"client": (WeightByExamples(), Clip(1.0))},
    "top-k": {"client": (TopK(0.5), Clip(1.0))},
    "two clips": {"client": (Clip(2.0), Clip(0.5))},
    "smoothing before the noise": {"server": (LaplacianSmoothing(1.5), *NOISE)},
    "shares": {"sample": FixedSize(3), "client": (Clip(1.0), NoiseShare(Gaussian(1.0), 2)), "server": ()},
    "shares in a sum": {
        "sample": FixedSize(3),
        "client": (Clip(1.0), NoiseShare(Gaussian(1.0), 1)),
        "server": (),
        "channel": SecureSum(2),
    },
    "noise at the client": {"sample": Poisson(0.5, Relation.REPLACE), "client": AT_CLIENT, "server": ()},
    "realised mean": {
        "sample": Everyone(Relation.REPLACE),
        "client": AT_CLIENT,
        "server": (),
        "aggregate": RealisedMean(),
    },
}


def case(name: str) -> Round:
    slots = {"sample": Poisson(0.5), "local": Chosen(), "client": (Clip(1.0),), "server": NOISE, "aggregate": Mean(1.5)}
    return Round(**{**slots, **CASES[name]})


@pytest.mark.parametrize("name", CASES)
def test_releases_have_the_law_that_is_attacked(name: str) -> None:
    round = case(name)
    found = releases(round, [client(OTHERS, 2)] * 3 + [client(VICTIM, 5)])
    parts = mixture(round, (Message(VICTIM, 5, LAYERS), Message(OTHERS, 2, LAYERS)))
    run = semantics(round, 4)
    assert unexplained(found, possible(run, parts)) == 0
    for wrong in (2 / 3, 3 / 2):
        assert unexplained(found, possible(run, parts, wrong)) > 0


def test_masks_send_a_public_part() -> None:
    round = replace(case("poisson"), client=(SharedMask(0.7), Clip(1.0)))
    victim, others = 5.0 * np.ones(3), -0.2 * np.ones(3)
    found = releases(round, [client(others, 1)] * 3 + [client(victim, 1)])
    parts = mixture(round, (Message(victim, 1, LAYERS), Message(others, 1, LAYERS)))
    kept = np.array([sorted(row[np.abs(row) > 1e-6]) for row in found])
    assert kept.shape[1] == 2
    assert unexplained(np.c_[kept, kept[:, 0]], possible(semantics(round, 4), parts)) == 0


def test_adaptive_rows_come_back_in_their_own_units() -> None:
    round = replace(case("poisson"), client=(AdaptiveClip(0.5, rate=1e-12, bit_weight=1.0),))
    found = releases(round, [client(OTHERS, 1)] * 3 + [client(VICTIM, 1)])
    parts = mixture(round, (Message(VICTIM, 1, LAYERS), Message(OTHERS, 1, LAYERS)))
    whole = [replace(part, mean=part.mean or (0.0,) * 4) for part in parts]
    assert unexplained(found, 0.5 * possible(semantics(round, 4), whole)[:, :-1]) == 0


@pytest.mark.parametrize("batch", [Poisson(0.4), FixedSize(1), Everyone()], ids=lambda batch: type(batch).__name__)
def test_private_steps_are_sums_of_clipped_gradients_and_noise(batch: Any) -> None:
    """One record with a huge gradient among three without any; two steps; learning rate and divisor are public."""
    local = DpSgd(2, batch, 4, clip=0.5, law=Gaussian(0.6))
    round = Round(sample=Everyone(), local=local, aggregate=Mean(over=1.0), unit=Unit.RECORD)
    x, y = torch.zeros(4, 3), torch.zeros(4, 1)
    x[0, 0], y[0] = 1e3, 1e6
    found = -releases(round, [(x, y)]) * local.divisor
    (victim, _, others), *_ = of_records(local, Shape(LAYERS), batch.relation)
    parts = law(replace(Semantics.of(round, None), curious=0), World(0, victim, others), "world")
    steps = [-np.array(part.mean) + local.steps * 0.6 * 0.5 for part in parts]
    assert unexplained(found, np.array(steps)) == 0
    assert np.isclose(parts[0].variance, local.steps * (0.6 * 0.5) ** 2)


@pytest.mark.parametrize("sampler", [Poisson(0.3), FixedSize(2), FixedSize(3), Everyone()], ids=str)
def test_cohorts_have_the_chances_that_are_attacked(sampler: Any) -> None:
    expected = {who: chance for chance, who in cohorts(sampler, 4)}
    draws = 3000
    found = Counter(tuple(sampler.draw(4, Key.from_seed(seed)).tolist()) for seed in range(draws))
    assert set(found) <= set(expected)
    distance = sum((found[who] - draws * chance) ** 2 / (draws * chance) for who, chance in expected.items())
    assert chi2.sf(distance, max(1, len(expected) - 1)) > 1e-4
