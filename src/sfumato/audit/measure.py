"""A round is run many times in each of two worlds, and the scores become lower bounds that hold together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sfumato.account.dominating import merged_gaussian
from sfumato.account.event import Event, Unit
from sfumato.audit.asked import Asked, NoCanary
from sfumato.audit.bounds import CERTAIN, Errors, Scores, bayesian, clopper_pearson, gaussian_fit
from sfumato.audit.family import Family, rejects
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd

_PILOT, _FEWEST_IMAGINED = 4000, 50
_PILOT_SHARE = 0.25  # of the time
_CANDIDATES = np.linspace(0.02, 0.98, 33)
_TRIED = 4  # runs of each world that are timed, and thrown away
_FEWEST, MOST = 100, 2000
Told = Callable[[int, int], object]  # how many runs are done, of how many


@runtime_checkable
class Worlds(Protocol):
    """Two neighbouring worlds that can be run again and again."""

    @property
    def words(self) -> tuple[str, ...]:
        """What is run, for people."""

    def score(self, present: bool, key: Key) -> float:
        """How much one run speaks for the present world."""

    def imagined(self, present: bool, runs: int, key: Key) -> Scores:
        """Scores of made-up runs of a round that is what it states."""


@dataclass(frozen=True)
class Measured:
    """Scores of both worlds; the threshold of what is printed, and those that are tried to refute a claim: all of them were chosen
    before any score was seen.
    """

    absent: Scores = field(repr=False)
    present: Scores = field(repr=False)
    threshold: float
    words: tuple[str, ...] = ()
    seconds: float = 0.0
    tried: tuple[float, ...] = field(default=(), repr=False)

    @property
    def errors(self) -> Errors:
        return Errors.of(self.absent, self.present, self.threshold)

    def bounds(self, asked: Asked, family: Family | None, delta: float, alpha: float) -> dict[str, float]:
        """Lower bounds on epsilon that hold together with probability 1 - alpha; `bayesian` is a belief of that much doubt.

        The family's bound and Clopper and Pearson's follow from the same two limits, so they share one alpha. The Gaussian
        fit is another statement about the same scores, and has its own half.
        """
        fits = is_gaussian(asked.event) and asked.others != "real"  # what real clients send is no normal noise
        share = alpha / 2 if fits else alpha
        found = {"clopper_pearson": clopper_pearson(self.errors, delta, share)}
        if family is not None:
            found["family"] = family.lower_bound(self.errors, delta, share)
        if fits:
            found["gaussian_fit"] = gaussian_fit(self.absent, self.present, delta, alpha - share)
        return found

    def certain(self, family: Family | None, delta: float) -> dict[str, float]:
        """Lower bounds that hold together with probability 1 - 1e-6: those that need no normal scores."""
        found = {"clopper_pearson": clopper_pearson(self.errors, delta, CERTAIN)}
        return found if family is None else {**found, "family": family.lower_bound(self.errors, delta, CERTAIN)}

    def belief(self, delta: float, alpha: float) -> float:
        """The Bayesian bound, which is no confidence bound."""
        return bayesian(self.errors, delta, alpha)

    def refutes(self, event: Event | None, claimed: float, delta: float, alpha: float) -> bool:
        """Whether the scores contradict that no more than this event happened, or that epsilon is what is claimed. Of any
        mechanism it errs with probability alpha at most.

        Thresholds share alpha. The one of what is printed suits a sound round, where few errors of one kind say most; with a
        certainty of one in a million they say nothing, and a round with half its noise would pass. The Gaussian fit has no
        part in it: it needs scores that are normal, and a broken round's need not be.
        """
        thresholds = self.tried or (self.threshold,)
        share = alpha / len(thresholds)
        every = [Errors.of(self.absent, self.present, threshold) for threshold in thresholds]
        return any(
            clopper_pearson(errors, delta, share) > claimed
            or (event is not None and rejects(event, *errors.upper(share)))
            for errors in every
        )


def is_gaussian(event: Event | None) -> bool:
    """Whether an event is a composition of unsampled Gaussians, whose scores are exactly normal."""
    return event is not None and merged_gaussian(event) is not None


def worlds_of(asked: Asked, real: Any = None) -> Worlds:
    """The two worlds that lie furthest apart for what is asked."""
    if asked.payment.slot == "local":
        if asked.unit is Unit.CLIENT or not isinstance(asked.round.local, DpSgd):
            raise NoCanary(f"{type(asked.round.local).__name__} has no canary of the unit {asked.unit}")
        if asked.others != "auto":
            raise BadValue(
                f"--others {asked.others}: canary records stand in a linear model, beside made-up records. Leave it out."
            )
        from sfumato.audit.record_worlds import record_worlds

        return record_worlds(asked)
    from sfumato.audit.client_worlds import client_worlds

    return client_worlds(asked, real)


def measure(
    worlds: Worlds,
    family: Family | None,
    *,
    key: Key,
    delta: float,
    alpha: float,
    runs: int | None = None,
    seconds: float = 60.0,
    told: Told = lambda done, total: None,
) -> Measured:
    """Run both worlds so many times, each run with a secret of its own; without `runs`, as often as `seconds` allow, made-up
    scores included.
    """
    if runs is not None and (isinstance(runs, bool) or runs < 10):
        raise BadValue(f"runs={runs}: at least 10 of each world, as a whole number, e.g. 2000.")
    started = time.perf_counter()
    imagined = _PILOT if runs is not None else _imaginable(worlds, key.child("tried"), seconds * _PILOT_SHARE)
    pilot = [worlds.imagined(present, imagined, key.child("pilot", world=int(present))) for present in (False, True)]
    if runs is None:
        runs = _affordable(worlds, key.child("tried"), seconds - (time.perf_counter() - started))
    candidates = candidate_thresholds(pilot[0], pilot[1])
    threshold = chosen_threshold(pilot[0], pilot[1], candidates, family, runs, delta, alpha)
    scores = np.empty((2, runs))
    for number in range(runs):
        for present in (False, True):
            scores[int(present), number] = worlds.score(present, key.child("run", world=int(present), number=number))
        told(number + 1, runs)
    seconds = time.perf_counter() - started
    finite = np.nan_to_num(scores, nan=math.inf, posinf=math.inf, neginf=-math.inf)
    return Measured(finite[0], finite[1], threshold, worlds.words, seconds, tuple(candidates))


def _imaginable(worlds: Worlds, key: Key, seconds: float) -> int:
    """How many made-up scores there is time for: noise that is drawn at a model's full length takes long."""
    started = time.perf_counter()
    for present in (False, True):
        worlds.imagined(present, _FEWEST_IMAGINED, key.child("imagined", world=int(present)))
    each = (time.perf_counter() - started) / _FEWEST_IMAGINED
    return int(min(_PILOT, max(_FEWEST_IMAGINED, seconds / each)))


def _affordable(worlds: Worlds, key: Key, seconds: float) -> int:
    worlds.score(True, key.child("first"))  # the first one chooses kernels
    started = time.perf_counter()
    for number in range(_TRIED):
        for present in (False, True):
            worlds.score(present, key.child("try", world=int(present), number=number))
    each = (time.perf_counter() - started) / _TRIED
    return int(min(MOST, max(_FEWEST, seconds / each)))


def candidate_thresholds(absent: Scores, present: Scores) -> list[float]:
    """From the smallest to the largest score that made-up runs often have."""
    return [float(one) for one in np.unique(np.quantile(np.concatenate([absent, present]), _CANDIDATES))]


def chosen_threshold(
    absent: Scores,
    present: Scores,
    candidates: list[float],
    family: Family | None,
    runs: int,
    delta: float,
    alpha: float,
) -> float:
    """The threshold whose bound would be the largest if errors come as often as in these made-up scores.

    Where no bound would say anything, and where there is no family, the one that errs least in both worlds together: there a
    round that is not what it states shows best.
    """
    rates = [((absent > threshold).mean(), (present <= threshold).mean()) for threshold in candidates]
    best = int(np.argmin([sum(both) for both in rates]))
    if family is not None:
        limits = [Errors(math.ceil(x * runs), runs, math.ceil(y * runs), runs).upper(alpha) for x, y in rates]

        def any_rejects(event: Event) -> bool:
            nonlocal best
            found = next((place for place, both in enumerate(limits) if rejects(event, *both)), None)
            best = best if found is None else found
            return found is not None

        family.least_rejected(any_rejects, delta)
    return candidates[best]
