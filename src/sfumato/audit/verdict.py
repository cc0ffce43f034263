"""What an audit says: the proven epsilon above, the measured ones below, and whether they can both be true."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from sfumato.account import accountant
from sfumato.account.event import Relation
from sfumato.audit.asked import Asked, NoCanary
from sfumato.audit.bounds import BY_SCORES, BY_TESTS, CERTAIN, rounded_down
from sfumato.audit.direct_tests import DirectTest, direct_tests, summary
from sfumato.audit.family import Family
from sfumato.audit.many import OneRun, one_run
from sfumato.audit.measure import Told, measure, worlds_of
from sfumato.audit.observation import observe
from sfumato.errors import BadValue
from sfumato.guarantee import PUBLIC, check_delta, observed_by, rounded_up
from sfumato.key import Key
from sfumato.unproven import claims

SCHEMA = 1
NAMES = {
    "family": "the same event with other noise",
    "gaussian_fit": "scores are normal, as they are for unsampled Gaussian noise",
    "clopper_pearson": "nothing is assumed of the mechanism",
    "one_run_f_dp": "one run with many canaries, the same event with other noise",
    "one_run": "one run with many canaries, nothing is assumed of the mechanism",
}
SEEDED = "the run was seeded: nothing here is about whoever knows the seed"
BESIDE_REAL = "clients' own records had a part in this, which nobody paid for: NOT private, do not publish it"
_UNTESTED = "no direct test was made: draws last for several rounds, clients differ, or no piece states what it draws"
_BEFORE = "what features have learnt from records before the first round is counted in what is proven, and no canary attacks it"


@dataclass(frozen=True)
class Verdict:
    """Upper and lower bounds on epsilon for one unit, relation, view and delta.

    `claimed` is proven, or where nothing could be (`proven` is false) what a paper claims; None: nothing is claimed. `bounds` hold
    together at `confidence`; `certain` are those that hold at 1 - 1e-6. `direct_tests` are those of noise, cohorts and canaries.
    `broken`: what is proven is false, or our code is.
    """

    unit: str
    relation: str
    view: str
    delta: float
    rounds: int
    claimed: float | None
    proven: bool
    confidence: float
    claimed_by: str = ""  # where nothing is proven: how a paper's claim was computed
    observer: str = ""
    runs: int = 0
    bounds: dict[str, float] | None = None
    certain: dict[str, float] | None = None
    belief: float | None = None
    threshold: float | None = None
    errors: dict[str, int] | None = None
    one_run: dict[str, Any] | None = None
    direct_tests: tuple[dict[str, Any], ...] = ()
    refuted: bool = False
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    schema: int = SCHEMA

    @property
    def broken(self) -> bool:
        """Whether a guarantee is contradicted: a paper's claim is none of ours."""
        return self.proven and self.refuted

    @property
    def tests(self) -> tuple[DirectTest, ...]:
        """The direct tests of noise, cohorts and canaries."""
        return tuple(DirectTest(**one) for one in self.direct_tests)

    @property
    def best(self) -> float:
        """The largest of the bounds that hold together, at the same delta."""
        return max((self.bounds or {}).values(), default=0.0)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "broken": self.broken, "best": self.best, "sentence": self.sentence}

    @property
    def _whose(self) -> str:
        relation, delta = Relation(self.relation).words, rounded_up(self.delta, 6)
        return f"each {self.unit}, {relation}, at delta {delta}, against {self.observer}"

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        if self.claimed is None:
            return f"Nothing is claimed for {self._whose}: there is nothing to hold an attack against."
        upper = rounded_up(self.claimed, 4)
        failed = [one for one in self.tests if one.failed]
        if self.broken and failed:
            return (
                f"BROKEN: epsilon {upper} is claimed for {self._whose}, and the round is not what it states. {failed[0].line}. "
                f"A sound round fails so with probability {CERTAIN:g} at most. Do not rely on this guarantee, and tell us."
            )
        if self.bounds is None:
            by = f" ({self.claimed_by})" if self.claimed_by else ""
            said = "Proven" if self.proven else "Claimed, not proven"
            return f"{said}: epsilon {upper}{by} for {self._whose}. Nothing was measured."
        lower = f"{rounded_down(self.best)} at confidence {self.confidence:.12g}"
        if self.broken:
            return (
                f"BROKEN: epsilon {upper} is claimed for {self._whose}, and the attack contradicts what is proven of "
                f"its rounds, at confidence 1 - {CERTAIN:g}. Do not rely on this guarantee, and tell us."
            )
        if not self.proven:
            fate = "The claim is refuted" if self.refuted else "The claim is not refuted by this attack"
            by = f" ({self.claimed_by})" if self.claimed_by else ""
            return f"A paper claims epsilon {upper}{by} for {self._whose}; it is not proven. Measured: at least {lower}. {fate}."
        fate = "No contradiction."
        if self.best > self.claimed:
            fate = (
                f"That is above it, as chance alone makes {1 - self.confidence:.2g} of all sound audits; at "
                f"1 - {CERTAIN:g}, by which the verdict goes, there is no contradiction. Audit again, with more runs."
            )
        return f"Proven of these rounds alone: epsilon at most {upper} for {self._whose}. Measured: at least {lower}. {fate}"

    def lines(self) -> list[str]:
        """For people: the sentence, the bounds one below the other, and what was run."""
        found = [self.sentence]
        if self.bounds is not None and self.claimed is not None:
            upper = "proven, at most" if self.proven else "claimed, not proven"
            table = [(upper, rounded_up(self.claimed, 4), "")]
            for name, value in sorted(self.bounds.items(), key=lambda item: -item[1]):
                table.append(("measured, at least", rounded_down(value), NAMES.get(name, name)))
            if self.belief is not None:
                table.append(
                    (
                        f"believed, {100 * self.confidence:.12g} %",
                        rounded_down(self.belief),
                        "Bayesian, no confidence bound",
                    )
                )
            found += ["", *(f"  {word:<20} {value:>8}  {why}".rstrip() for word, value, why in table)]
        if self.one_run is not None:
            found += ["", OneRun(**self.one_run).line()]
        if self.errors is not None:
            said = "Scores above the threshold: {false_positives} of {absent} runs without the canary; below: {false_negatives} of "
            found += ["", (said + "{present} with it.").format(**self.errors)]
        if self.tests:
            head = f"Tested directly (at most {BY_TESTS:g} of all sound rounds fail a test):"
            found += ["", head, *(f"  {line}" for line in summary(self.tests)), ""]
        return [*found, *(f"{words[0].upper()}{words[1:]}." for words in (*self.words, *self.notes))]


@dataclass(frozen=True)
class How:
    """How an audit is made: how often, how sure, from which secret."""

    key: Key
    delta: float
    confidence: float = 0.95
    runs: int | None = None
    seconds: float = 60.0
    canaries: int = 0

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not 0.5 <= self.confidence < 1.0:
            raise BadValue(f"confidence={self.confidence}: at least 0.5 and below 1, e.g. 0.95.")
        if not self.seconds > 0.0:
            raise BadValue(f"seconds={self.seconds}: about how long to run canaries, a positive number, e.g. 45.")


def audit(
    asked: Asked,
    how: How,
    told: Told = lambda done, total: None,
    real: Any = None,
) -> Verdict:
    """Test the round directly, run it with canaries, and compare what they show with what is claimed for it.

    What a paper claims is about the unit of its round and about whoever sees the model: nobody claims it for others.
    """
    asked = asked if real is None else replace(asked, others="real")
    proven, delta = not (asked.round.unproven or asked.round.nonprivate), how.delta
    claimed, by = None, ""
    if proven and asked.whole is not None:
        claimed = accountant().epsilon(asked.whole, delta)
    elif asked.round.unproven and asked.unit is asked.round.unit and asked.view == "world":
        said = claims(asked.round, asked.derivation, asked.rounds, delta)
        claimed, by = said["claimed_epsilon"], said["claimed_by"]
    relation = str(asked.relation)
    view = PUBLIC if asked.view == "world" else "the server"
    observer = view if asked.whole is None else observed_by(view, asked.whole, asked.unit)
    facts: dict[str, Any] = {
        "delta": delta,
        "rounds": asked.rounds,
        "claimed": claimed,
        "claimed_by": by,
        "proven": proven,
    }
    who: dict[str, Any] = {"unit": str(asked.unit), "relation": relation, "view": asked.view, "observer": observer}
    found = Verdict(**who, **facts, confidence=how.confidence)
    if claimed is None:
        refused = asked.derivation.refused.get(asked.unit)
        return found if refused is None else replace(found, notes=(refused.reason.rstrip("."),))
    found = replace(found, notes=() if asked.before is None else (_BEFORE,))
    try:
        found = _tested(found, asked, how.key.child("direct")) if proven else found
        if found.refuted:
            return replace(found, notes=(*found.notes, "no canary was scored: a direct test has failed already"))
        worlds = worlds_of(asked, real)
    except NoCanary as reason:
        return replace(found, notes=(*found.notes, f"no canary was run: {str(reason).rstrip('.')}"))
    size = {"population": asked.population, "dimension": asked.dimension, "rounds": asked.rounds}
    family = Family.of(asked.round, **size, unit=asked.unit, view=asked.view) if proven and asked.attained else None
    kinds = 2 if how.canaries else 1  # of audits that are printed, which share the doubt
    alpha = (1.0 - how.confidence) / kinds
    if how.canaries:
        once = one_run(asked, family, how.canaries, how.key.child("one"), delta, alpha)
        found = replace(found, one_run=asdict(once), refuted=once.refutes, seconds=found.seconds + once.seconds)
    measured = measure(
        worlds, family, key=how.key.child("many"), delta=delta, alpha=alpha, runs=how.runs,
        seconds=how.seconds - found.seconds, told=told,
    )  # fmt: skip
    unknown = "no family is known whose epsilon some worlds attain, so only bounds that need none are printed"
    notes = (
        *found.notes,
        *((unknown,) if proven and not family else ()),
        *((BESIDE_REAL,) if real is not None else ()),
    )
    bounds = measured.bounds(asked, family, delta, alpha)
    certain = measured.certain(family, delta)
    refuted = measured.refutes(asked.event, claimed, delta, BY_SCORES / kinds)
    return replace(
        found, runs=len(measured.present), bounds=bounds, certain=certain, belief=measured.belief(delta, alpha),
        threshold=measured.threshold, errors=asdict(measured.errors), refuted=refuted or found.refuted,
        words=measured.words, notes=notes, seconds=found.seconds + measured.seconds,
    )  # fmt: skip


def _tested(found: Verdict, asked: Asked, key: Key) -> Verdict:
    """With the direct tests of what the round hands out."""
    started = time.perf_counter()
    tests = direct_tests(observe(asked, key))
    every, failed = tuple(map(asdict, tests)), any(one.failed for one in tests)
    found = found if tests else replace(found, notes=(*found.notes, _UNTESTED))
    return replace(found, direct_tests=every, refuted=failed, seconds=time.perf_counter() - started)
