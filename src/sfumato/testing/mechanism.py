"""Any function that should be private, attacked from outside: what it releases in two worlds, and what that proves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.audit.bounds import Errors, Scores, clopper_pearson, rounded_down
from sfumato.errors import BadValue
from sfumato.testing.replay import flat

REPORTED, SURE = 0.05, 1e-6  # chances that a bound is wrong: what is told, and what refutes a claim


@dataclass(frozen=True)
class MechanismAudit:
    """What was found at `delta`: `lower` holds with 95 % confidence, `sure` but for one chance in a million."""

    lower: float
    sure: float
    delta: float
    claimed: float | None
    score: str  # which looked best in the first runs

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, beyond what chance explains."""
        return self.claimed is not None and self.sure > self.claimed

    def __str__(self) -> str:
        against = "nothing is claimed" if self.claimed is None else f"{self.claimed:.4g} is claimed"
        verdict = ": refuted" if self.refuted else ""
        return f"epsilon >= {rounded_down(self.lower)} at delta {self.delta!r} (95 %, by the {self.score}); {against}{verdict}"


def audit_mechanism(
    mechanism: Callable[[Any], Any],
    absent: Any,
    present: Any,
    *,
    delta: float,
    epsilon: float | None = None,
    runs: int = 1000,
) -> MechanismAudit:
    """Run a mechanism `runs` times on each of two neighbouring inputs, and say how well the releases can be told apart.

    The mechanism draws its own noise, anew each time. The first third of the runs chooses among scores (a projection on the line
    between the two worlds, the length of the release, whether it is finite) and a threshold; the others are counted, so the
    bound of Clopper and Pearson holds for them whatever was chosen. It shows at most about the log of the number of runs.

    Assumes that runs are independent. The worlds take turns, in the order absent, present, present, absent, so that a mechanism
    that drifts with time does so in both.
    """
    if not 0.0 <= delta < 1.0:
        raise BadValue(f"delta={delta}: a probability is needed, from 0 to below 1, e.g. 1e-5.")
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 30:
        raise BadValue(
            f"runs={runs}: at least 30 in each world, a whole number, of which a third is spent on choosing a threshold."
        )
    worlds: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for number in range(runs):
        for world in (0, 1) if number % 2 == 0 else (1, 0):
            worlds[world].append(_run(mechanism, (absent, present)[world]))
    first = runs // 3
    with np.errstate(all="ignore"):  # a score that overflows is one, whatever it says
        name, score = _best(worlds[0][:first], worlds[1][:first], delta)
        counted = [np.array([score(release) for release in world[first:]]) for world in worlds]
    errors = Errors.of(counted[0], counted[1], 0.0)
    return MechanismAudit(
        clopper_pearson(errors, delta, REPORTED), clopper_pearson(errors, delta, SURE), delta, epsilon, name
    )


Score = Callable[[np.ndarray], float]


def _run(mechanism: Callable[[Any], Any], data: Any) -> np.ndarray:
    """A release; one that failed is a release too, of nothing finite."""
    try:
        return flat(mechanism(data))
    except Exception:
        return np.array([math.nan])


def _best(absent: list[np.ndarray], present: list[np.ndarray], delta: float) -> tuple[str, Score]:
    """The score, less its threshold, that showed most in these runs."""
    found: list[tuple[float, str, Score]] = []
    for name, score in _scores(absent, present).items():
        scores = [np.array([score(release) for release in world]) for world in (absent, present)]
        for sign in (1.0, -1.0):
            for threshold in np.unique(
                np.quantile(np.concatenate(scores), np.linspace(0.01, 0.99, 25), method="lower")
            ):
                shown = clopper_pearson(_errors(scores, sign, threshold), delta, REPORTED)
                found.append((shown, name, _above(score, sign, float(threshold))))
    _, name, score = max(found, key=lambda one: one[0])
    return name, score


def _errors(scores: list[Scores], sign: float, threshold: float) -> Errors:
    return Errors.of(sign * (scores[0] - threshold), sign * (scores[1] - threshold), 0.0)


def _above(score: Score, sign: float, threshold: float) -> Score:
    return lambda release: sign * (score(release) - threshold)


def _scores(absent: list[np.ndarray], present: list[np.ndarray]) -> dict[str, Score]:
    finite = [[release for release in world if np.isfinite(release).all()] for world in (absent, present)]
    found: dict[str, Score] = {"finiteness": lambda release: float(np.isfinite(release).all())}
    if not all(finite) or len({release.shape for world in finite for release in world}) > 1:
        return found
    rows = [np.stack(world) for world in finite]
    usual = rows[0].shape[1:]
    line = (rows[1].mean(0) - rows[0].mean(0)) / (rows[0].var(0) + rows[1].var(0) + 1e-12)

    def of_finite(score: Score) -> Score:
        return lambda release: score(release) if release.shape == usual and np.isfinite(release).all() else -1e300

    found["projection"] = of_finite(lambda release: float(release @ line))
    found["length"] = of_finite(lambda release: float(release @ release))
    return found
