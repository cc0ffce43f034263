"""Which sabotage is caught by what: the table is generated, and every row has a catcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sfumato import AddNoise, Clip, Everyone, Gaussian, Round
from sfumato.audit.asked import Asked
from sfumato.audit.verdict import How, audit
from sfumato.errors import SfumatoError
from sfumato.key import Key
from sfumato.testing import check_noise, check_piece, check_round, check_sampler
from tests.helpers import dp_round, unchecked
from tests.sabotage import test_sabotage as broken

_RUNS, _ROUNDS, _POPULATION = 1000, 2, 40


def rows() -> Iterator[tuple[str, Callable[[], object], Round]]:
    """The name of a mistake, the law that it should fail, and a round that has it."""
    for clip in broken.BROKEN_CLIPS:
        yield clip.__name__, lambda clip=clip: check_piece(clip(0.3)), _round(client=(clip(0.3),))
    for noise in broken.BROKEN_NOISES:
        yield noise.__name__, lambda noise=noise: check_noise(noise()), _round(server=(noise(),))
    for sampler in broken.BROKEN_SAMPLERS:
        yield type(sampler).__name__, lambda sampler=sampler: check_sampler(sampler), _round(sample=sampler)
    others = {
        "MeanOverTheRealisedCohort": {"aggregate": broken.MeanOverTheRealisedCohort(50)},
        "SumCalledMean": {"aggregate": broken.SumCalledMean(3)},
        "UncappedWeights": {"client": (Clip(1.0), broken.UncappedWeights(cap=1))},
        "DrawsEveryone": {"sample": broken.DrawsEveryone(0.05)},
    }
    for name, slots in others.items():
        round = dp_round(**slots)
        yield name, lambda round=round: check_round(round, draws=1500), round


def _round(**changed: Any) -> Round:
    return dp_round(**{"sample": Everyone(), "server": (AddNoise(Gaussian(1.0)),), **changed})


def _laws(check: Callable[[], object]) -> bool:
    try:
        with unchecked():
            check()
    except AssertionError:
        return True
    return False


def caught_by_audit(round: Round) -> bool:
    """Whether a canary audit calls it broken, or cannot even run it."""
    try:
        asked = Asked(round, _POPULATION, 8, _ROUNDS, round.unit)
        with unchecked():
            return audit(asked, How(Key.from_seed(1), 1e-5, runs=_RUNS)).broken
    except SfumatoError:
        return True


def table() -> list[str]:
    """Lines of Markdown."""
    lines = ["| mistake | the laws | an audit |", "|---|---|---|"]
    for name, check, round in rows():
        laws, audited = _laws(check), caught_by_audit(round)
        assert laws or audited, f"{name} is caught by nothing"
        lines.append(f"| {name} | {'caught' if laws else ''} | {'caught' if audited else ''} |")
    return lines
