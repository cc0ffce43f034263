"""Millions of steps that each lose next to nothing, where a single grid would round more than there is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.account import accountant
from sfumato.account import loss_blocks as blocks
from sfumato.account.dominating import pair_of
from sfumato.account.event import Event, FixedSizeSampled, GaussianEvent, PoissonSampled, Relation, Repeated
from sfumato.account.loss_grid import Loss, Times, grid
from sfumato.account.pairs import Pair, Reversed
from sfumato.account.tail import Tail

from .contour import exact_epsilon, fixed_size, poisson, poisson_replace

LAWS = {
    "poisson": (lambda rate, ratio: PoissonSampled(rate, GaussianEvent(ratio)), poisson),
    "fixed": (lambda rate, ratio: FixedSizeSampled(rate, GaussianEvent(ratio)), fixed_size),
    "replace": (lambda rate, ratio: PoissonSampled(rate, GaussianEvent(ratio), Relation.REPLACE), poisson_replace),
}
EXTREMES = [
    ("poisson", 1.43e-5, 0.568, 3_380_000, 9.1e-6),
    ("poisson", 1e-6, 0.7, 100_000_000, 1e-6),
    ("poisson", 2e-5, 0.62, 20_000_000, 1e-7),
    ("poisson", 5e-6, 0.55, 30_000_000, 1e-5),
    ("poisson", 1e-6, 0.5, 10_000_000, 1e-6),
    ("fixed", 1e-6, 0.7, 10_000_000, 1e-6),
    ("replace", 1e-5, 0.3, 3_000_000, 1e-5),
    ("poisson", 0.05, 1.0, 200, 1e-5),
]


@pytest.mark.parametrize(("kind", "rate", "ratio", "times", "delta"), EXTREMES)
def test_at_most_half_a_percent_above_the_truth_and_never_below(
    kind: str, rate: float, ratio: float, times: int, delta: float
) -> None:
    make, law = LAWS[kind]
    event = Repeated(make(rate, ratio), times)
    found = accountant("pld").epsilon(event, delta)
    exact = exact_epsilon(law(rate, ratio).cumulant(times), delta, 2 * found)
    assert exact * (1 - 1e-9) <= found <= exact * 1.005
    assert delta * (1 - 1e-6) <= accountant("pld").delta(event, exact) <= delta * 1.1


def test_the_twin_gives_known_values() -> None:
    assert exact_epsilon(poisson(0.05, 1.0).cumulant(200), 1e-5, 10.0) == pytest.approx(4.76592, abs=1e-5)
    assert exact_epsilon(fixed_size(16 / 600, 1.0).cumulant(3534), 1e-5, 20.0) == pytest.approx(13.8772, abs=1e-4)


def deltas(loss: Loss, step: float, at: list[float]) -> np.ndarray:
    return Tail(loss, step, 0.0, 0.0).deltas(np.array(at))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    "event",
    [PoissonSampled(2e-3, GaussianEvent(0.9)), FixedSizeSampled(1e-3, GaussianEvent(0.8))],
    ids=["poisson", "fixed"],
)
def test_blocks_agree_with_a_grid_that_is_fine_enough(event: Event, backward: bool) -> None:
    pair: Pair = Reversed(pair_of(event)) if backward else pair_of(event)
    times, step, at = 20_000, 2.0**-8, [0.1, 0.3, 0.6, 1.0]
    fine = deltas(Times(grid(pair, 2.0**-17, 0.002), times), 2.0**-17, at)
    coarse = deltas(Times(grid(pair, step, 0.002), times), step, at)
    found = blocks.in_blocks(pair, times, step, 0.002, math.inf, -40.0)
    assert found is not None
    by_blocks = deltas(found, step, at)
    assert np.all(by_blocks >= fine * (1 - 2e-3))  # fine is from above itself
    assert np.all(by_blocks - fine <= 0.02 * (coarse - fine))  # a fiftieth of what a single grid of that step adds


def test_without_the_jumps_the_laws_would_fall_below_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: what is rare decides a small delta, and blocks of usual losses alone do not see it."""
    event, times, step = PoissonSampled(1e-4, GaussianEvent(0.5)), 100_000, 2.0**-12
    exact = deltas(Times(grid(pair_of(event), 2.0**-15, 0.005), times), 2.0**-15, [2.0])
    right = blocks.in_blocks(pair_of(event), times, step, 0.005, math.inf, -40.0)
    monkeypatch.setattr(blocks, "_jumps", lambda *_: blocks._grid(step, np.zeros(1), np.zeros(1), 0.0))
    wrong = blocks.in_blocks(pair_of(event), times, step, 0.005, math.inf, -40.0)
    assert right is not None and wrong is not None
    assert deltas(right, step, [2.0]) >= exact * (1 - 1e-2)
    assert deltas(wrong, step, [2.0]) < 0.9 * exact
