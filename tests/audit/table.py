"""The 33 sabotaged pieces, and what catches each: property tests, the direct tests of an audit, the scores of its canaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sfumato import AddNoise, Clip, Everyone, Gaussian, Round
from sfumato.account import accountant
from sfumato.audit.asked import Asked
from sfumato.audit.bounds import BY_SCORES
from sfumato.audit.direct_tests import direct_tests
from sfumato.audit.measure import measure, worlds_of
from sfumato.audit.observation import observe
from sfumato.errors import SfumatoError
from sfumato.key import Key
from sfumato.testing import check_noise, check_piece, check_round, check_sampler
from tests.helpers import dp_round, unchecked
from tests.sabotage import test_sabotage as broken

_RUNS, _ROUNDS, _POPULATION, _DIMENSION, _DELTA = 1000, 2, 40, 8, 1e-5

# What an audit does not catch, and why: also in docs/audit.md.
MISSED = {
    "ClipsByTheLargestRow": "it does not run: the engine asks it about an empty block of clients first",
    "ClipsInPlace": "it writes over its input, which nobody reads again: every message is what it should be",
    "ClipsTwiceInPlace": "messages are shorter than stated, which reveals less",
    "ForgetsWhatTheCuriousKnow": "the guarantee leaves out an event of clients who pool what they know; no release shows it",
}


@dataclass(frozen=True)
class Sabotage:
    """A mistake by name, the property test that it has to fail, and a round that has it."""

    name: str
    check: Callable[[], object] = field(repr=False)
    round: Round = field(repr=False)

    @property
    def asked(self) -> Asked:
        return Asked(self.round, _POPULATION, _DIMENSION, _ROUNDS, self.round.unit)


def sabotages() -> list[Sabotage]:
    """All 33."""
    found = []
    for clip in broken.BROKEN_CLIPS:
        found.append(Sabotage(clip.__name__, lambda clip=clip: check_piece(clip(0.3)), _round(client=(clip(0.3),))))
    for noise in broken.BROKEN_NOISES:
        found.append(Sabotage(noise.__name__, lambda noise=noise: check_noise(noise()), _round(server=(noise(),))))
    for sampler in broken.BROKEN_SAMPLERS:
        check = lambda sampler=sampler: check_sampler(sampler)  # noqa: E731
        found.append(Sabotage(type(sampler).__name__, check, _round(sample=sampler)))
    others: dict[str, dict[str, Any]] = {
        "MeanOverTheRealisedCohort": {"aggregate": broken.MeanOverTheRealisedCohort(50)},
        "SumCalledMean": {"aggregate": broken.SumCalledMean(3)},
        "UncappedWeights": {"client": (Clip(1.0), broken.UncappedWeights(cap=1))},
        "DrawsEveryone": {"sample": broken.DrawsEveryone(0.05)},
    }
    for name, slots in others.items():
        round = dp_round(**slots)
        found.append(Sabotage(name, lambda round=round: check_round(round, draws=1500), round))
    assert len(found) == len({one.name for one in found}) == 33
    return found


def _round(**changed: Any) -> Round:
    return dp_round(**{"sample": Everyone(), "server": (AddNoise(Gaussian(1.0)),), **changed})


def by_properties(sabotage: Sabotage) -> str:
    """Whether a property test fails."""
    try:
        with unchecked():
            sabotage.check()
    except AssertionError:
        return "caught"
    return ""


def by_direct_tests(sabotage: Sabotage) -> str:
    """The first direct test that fails; or why there is none."""
    try:
        with unchecked():
            found = direct_tests(observe(sabotage.asked, Key.from_seed(1)))
    except RuntimeError:
        return "does not run"
    return next((f"{one.of}: {one.statement}" for one in found if one.failed), "")


def by_scores(sabotage: Sabotage) -> str:
    """Whether the scores of canaries refute what is claimed; or why there are none."""
    asked = sabotage.asked
    assert asked.event is not None, "they state something"
    try:
        with unchecked():
            scores = measure(worlds_of(asked), None, key=Key.from_seed(1), delta=_DELTA, alpha=0.05, runs=_RUNS)
    except SfumatoError:
        return "refused"
    except RuntimeError:
        return "does not run"
    claimed = accountant().epsilon(asked.event, _DELTA)
    return "caught" if scores.refutes(asked.event, claimed, _DELTA, BY_SCORES) else ""


def table() -> tuple[list[str], int]:
    """Lines of Markdown, and how many an audit catches. Every sabotage is caught by something."""
    lines = ["| mistake | property tests | direct tests of an audit | scores of canaries |", "|---|---|---|---|"]
    caught = set()
    for one in sabotages():
        properties, direct, scores = by_properties(one), by_direct_tests(one), by_scores(one)
        said = direct in ("", "does not run")
        assert properties or not said or scores == "caught", f"{one.name} is caught by nothing"
        if not said or scores == "caught":
            caught.add(one.name)
        lines.append(f"| `{one.name}` | {properties} | {direct} | {scores} |")
    assert caught.isdisjoint(MISSED) and len(caught) + len(MISSED) == 33, "docs/audit.md lists what is missed"
    return [*lines, "", f"An audit catches {len(caught)} of 33."], len(caught)
