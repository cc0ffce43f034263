"""An audit of any function: it refutes what is false, and not what is true."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.account.gdp import gdp_epsilon
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.testing import audit_mechanism
from tests.helpers import unchecked

DELTA = 1e-3


class Noisy:
    """A vector with normal noise of one deviation, anew in each run."""

    def __init__(self, stddev: float, seed: int = 1) -> None:
        self.stddev, self.key, self.runs = stddev, Key.from_seed(seed), 0

    def __call__(self, value: float) -> np.ndarray:
        self.runs += 1
        noise = self.key.child("run", number=self.runs).normal(3).numpy()
        return np.array([value, 0.0, 0.0]) + self.stddev * noise


def test_a_sound_mechanism_is_not_refuted_and_something_is_found() -> None:
    found = audit_mechanism(Noisy(1.0), 0.0, 1.0, delta=DELTA, epsilon=gdp_epsilon(1.0, DELTA), runs=1500)
    assert not found.refuted and found.score == "projection"
    assert 0.5 < found.lower <= gdp_epsilon(1.0, DELTA)
    assert found.sure < found.lower and "is claimed" in str(found)


@pytest.mark.parametrize("size", [1e200, 1e160])
def test_releases_whose_length_overflows_say_nothing(size: float) -> None:
    found = audit_mechanism(lambda _: np.full(3, size), 0.0, 1.0, delta=DELTA, epsilon=0.1, runs=300)
    assert found.lower == 0.0 and not found.refuted


def test_a_drift_in_time_tells_nothing_of_the_worlds() -> None:
    drifts = Noisy(1.0)
    found = audit_mechanism(lambda value: drifts(0.0) + drifts.runs / 100, 0.0, 1.0, delta=DELTA, epsilon=0.1, runs=900)
    assert not found.refuted and found.lower < 0.1


def test_a_release_of_another_length_is_a_release_too() -> None:
    noisy = Noisy(1.0)
    found = audit_mechanism(
        lambda value: noisy(value)[: 2 if noisy.runs % 50 == 49 and noisy.runs > 700 else 3],
        0.0,
        1.0,
        delta=DELTA,
        runs=900,
    )
    assert found.lower > 0.3


@pytest.mark.parametrize(
    "asked", [{"delta": -1.0}, {"delta": 2.0}, {"delta": float("nan")}, {"runs": 30.5}, {"runs": 10}]
)
def test_what_cannot_be_asked_is_refused(asked: dict[str, float]) -> None:
    with unchecked(), pytest.raises(BadValue):
        audit_mechanism(Noisy(1.0), 0.0, 1.0, **{"delta": DELTA, **asked})  # type: ignore[arg-type]


def test_noise_of_a_quarter_is_refuted() -> None:
    found = audit_mechanism(Noisy(1 / 4), 0.0, 1.0, delta=DELTA, epsilon=gdp_epsilon(1.0, DELTA), runs=1500)
    assert found.refuted and str(found).endswith("refuted")


def test_noise_whose_size_tells_is_found_by_its_length() -> None:
    def mechanism(scale: float, noisy: Noisy = Noisy(1.0)) -> np.ndarray:
        return scale * noisy(0.0)

    found = audit_mechanism(mechanism, 1.0, 4.0, delta=DELTA, epsilon=0.5, runs=600)
    assert found.refuted and found.score == "length"


@pytest.mark.parametrize("broken", ["raises", "NaN"])
def test_a_failure_in_one_world_is_a_release(broken: str) -> None:
    noisy = Noisy(100.0)

    def mechanism(value: float) -> np.ndarray:
        if value and broken == "raises":
            raise ZeroDivisionError
        return noisy(value / value if broken == "NaN" else value)

    with np.errstate(invalid="ignore"):
        found = audit_mechanism(mechanism, np.float64(0.0), np.float64(1.0), delta=DELTA, epsilon=0.1, runs=200)
    assert found.refuted and found.score == "finiteness"


def test_bounds_of_no_leak_are_above_nothing_in_few_of_many_audits() -> None:
    above = [audit_mechanism(Noisy(1.0, seed), 0.0, 0.0, delta=0.0, runs=60).lower > 0.0 for seed in range(60)]
    assert sum(above) <= 9  # 3 are allowed on average: 9 or fewer with a chance above 0.998


def test_a_threshold_needs_runs_of_its_own() -> None:
    with pytest.raises(BadValue, match="at least 30"):
        audit_mechanism(Noisy(1.0), 0.0, 1.0, delta=DELTA, runs=10)
