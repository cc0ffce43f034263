"""A "what if" in the user's words, and the event that it stands for: the arithmetic of sensitivities in one place.

noise   gaussian:Z     standard deviation Z times the L2 clip norm
        laplace:B      scale B times the L1 clip norm
sample  poisson:0.05   each client with probability 0.05       poisson:50/1000   the same
        fixed:50/1000  50 of 1000 clients, without replacement
        everyone
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sfumato.account.checks import check_rounds
from sfumato.account.event import (
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    PoissonSampled,
    Relation,
    Repeated,
    Unit,
)
from sfumato.errors import BadValue, CannotAccount, nearest


@dataclass(frozen=True)
class NoiseWords:
    """The law of the noise, and its size over the clip norm."""

    law: str
    multiplier: float

    def __str__(self) -> str:
        return f"{self.law}:{self.multiplier:g}"


@dataclass(frozen=True)
class SampleWords:
    """How a cohort or a batch is drawn: `size` of `population` if they are known, and the rate."""

    kind: str
    rate: float
    size: int | None = None
    population: int | None = None

    def __str__(self) -> str:
        if self.kind == "everyone":
            return self.kind
        return f"{self.kind}:{self.size}/{self.population}" if self.population else f"{self.kind}:{self.rate:g}"

    def known_to(self, curious: int) -> float:
        """The rate for an observer who knows whether `curious` others were drawn: it rises for a fixed size only."""
        if self.kind != "fixed" or not curious or self.size is None or self.population is None:
            return self.rate
        if self.size > self.population - curious:
            if self.size == self.population:
                return 1.0
            raise CannotAccount(
                f"{self}: with {curious} curious clients nobody is hidden. Draw fewer, or lower --curious."
            )
        return self.size / (self.population - curious)


def parse_noise(text: str) -> NoiseWords:
    """What `--noise` says.

    >>> parse_noise("gaussian:1.1")
    NoiseWords(law='gaussian', multiplier=1.1)
    """
    law, _, size = text.partition(":")
    if law not in ("gaussian", "laplace"):
        raise BadValue(f"--noise {text}: the law {law!r} is not known. {nearest(law, ['gaussian', 'laplace'])}")
    multiplier = _number(f"--noise {text}", size, "gaussian:1.0")
    if not (multiplier > 0 and math.isfinite(multiplier)):
        raise BadValue(f"--noise {text}: the noise must be positive and finite, e.g. gaussian:1.0.")
    return NoiseWords(law, multiplier)


def parse_sample(text: str, option: str = "--sample") -> SampleWords:
    """What `--sample` or `--batch` says.

    >>> parse_sample("fixed:50/1000")
    SampleWords(kind='fixed', rate=0.05, size=50, population=1000)
    """
    kind, _, amount = text.partition(":")
    if kind not in ("poisson", "fixed", "everyone"):
        raise BadValue(f"{option} {text}: {kind!r} is not known. {nearest(kind, ['poisson', 'fixed', 'everyone'])}")
    if kind == "everyone":
        return SampleWords(kind, 1.0)
    if "/" in amount:
        size, population = (_whole(f"{option} {text}", part) for part in amount.split("/", 1))
        if not 1 <= size <= population:
            raise BadValue(f"{option} {text}: a size from 1 to the population is needed, e.g. {kind}:50/1000.")
        return SampleWords(kind, size / population, size, population)
    if kind == "fixed":
        raise BadValue(f"{option} {text}: a fixed size needs its population, e.g. fixed:50/1000.")
    rate = _number(f"{option} {text}", amount, "poisson:0.05")
    if not 0 < rate <= 1:
        raise BadValue(f"{option} {text}: the rate is a probability above 0 and at most 1, e.g. poisson:0.05.")
    return SampleWords(kind, rate)


def parse_relation(text: str | None) -> Relation | None:
    """What `--relation` says: add-remove, replace or zero-out."""
    if text is None:
        return None
    name = text.replace("-", "_")
    if name not in list(Relation):
        raise BadValue(f"--relation {text}: not known. {nearest(name, [str(one) for one in Relation])}")
    return Relation(name)


def _number(where: str, text: str, example: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadValue(f"{where}: {text!r} is not a number. Write for example {example}.") from None


def _whole(where: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadValue(f"{where}: {text!r} is not a whole number. Write for example fixed:50/1000.") from None


@dataclass(frozen=True)
class Setting:
    """Noise, sampling, rounds, unit and relation; `batch` and `steps` describe the local training of a record's client."""

    noise: NoiseWords
    sample: SampleWords
    rounds: int
    unit: Unit = Unit.CLIENT
    relation: Relation | None = None
    batch: SampleWords | None = None
    steps: int = 1
    at_client: bool = False
    curious: int = 1

    def __post_init__(self) -> None:
        check_rounds(self.rounds)
        check_rounds(self.steps, "steps")
        if self.unit is Unit.RECORD and self.batch is None:
            raise BadValue("--unit record: say how a client draws its batches, e.g. --batch fixed:16/600 --steps 38.")
        if self.unit is Unit.CLIENT and (self.batch is not None or self.steps != 1):
            raise BadValue("--batch and --steps speak of records: add --unit record, or leave them out.")
        if self.curious < 0:
            raise BadValue(f"--curious {self.curious}: the number of curious clients cannot be negative.")

    @property
    def neighbours(self) -> Relation:
        """The relation: as chosen, or replace for a fixed size and for noise at the client, else add/remove."""
        if self.relation is not None:
            return self.relation
        drawn = self.batch if self.batch is not None else self.sample
        return Relation.REPLACE if drawn.kind == "fixed" or self.at_client else Relation.ADD_REMOVE

    @property
    def sensitivity(self) -> float:
        """How far one unit can move the noisy sum, in clip norms: 2 where its row is swapped or displaces another."""
        drawn = self.batch if self.batch is not None else self.sample
        displaces = drawn.kind == "fixed" and not self.at_client
        return 2.0 if self.neighbours is Relation.REPLACE or displaces else 1.0

    def event(self) -> Event:
        """What happens to one unit in all rounds, in the view of the world."""
        return Repeated(self.round_event(), self.rounds)

    def round_event(self) -> Event:
        """What happens to one unit in one round, in the view of the world."""
        law = GaussianEvent if self.noise.law == "gaussian" else LaplaceEvent
        noise = law(self.noise.multiplier / self.sensitivity)
        if self.batch is not None:
            local = self._sampled(noise, self.batch, self.batch.rate)
            return _sometimes(
                self.sample.known_to(self.curious), Repeated(local, self.steps) if self.steps > 1 else local
            )
        if self.at_client:
            if self.neighbours is Relation.ADD_REMOVE:
                raise CannotAccount(
                    "noise at the client hides no client's presence. Use --relation replace or zero-out."
                )
            return _sometimes(self.sample.known_to(self.curious), noise)
        return self._sampled(noise, self.sample, self.sample.known_to(self.curious))

    def server_event(self) -> Event | None:
        """The same against the server, which knows the cohort; None where it sees updates without noise."""
        return self.event() if self.batch is not None or self.at_client else None

    def at(self, multiplier: float) -> Setting:
        """The same with other noise."""
        return replace(self, noise=replace(self.noise, multiplier=multiplier))

    def _sampled(self, noise: Event, drawn: SampleWords, rate: float) -> Event:
        if drawn.kind == "everyone" or rate == 1:
            return noise
        if self.neighbours is Relation.ZERO_OUT and drawn.kind == "poisson":
            return PoissonSampled(rate, noise)  # the same pair as add/remove: the row is there or is zero
        law = PoissonSampled if drawn.kind == "poisson" else FixedSizeSampled
        return law(rate, noise, self.neighbours)


def _sometimes(probability: float, event: Event) -> Event:
    return event if probability == 1 else Mixture(probability, event)
