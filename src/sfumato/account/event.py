"""What happened to one unit's data, in words that an accountant can price.

Every number is relative to the sensitivity under the stated relation: `GaussianEvent(ratio)` has a standard deviation of
`ratio` times the distance that one unit can move the released value. The derivation (`sfumato.derive`) computes that
distance; nothing else may. Sampling wraps an event, `Repeated` holds the only count, `Composed` puts different ones in a row.

Events are frozen, hashable and round-trip through JSON. A third party adds one by subclassing `Event`, decorating it
with `@register`, and teaching an accountant about it (`merged_gaussian`, `pair_of`, `rdp_of`). What it is made of is read from
its fields; it may say its own `words`. An event that costs less because something is drawn in secret says so: its `sampling` in
words, and in `secret` what the observer must not know.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from sfumato.errors import BadValue, CannotAccount

Real = float | int


class Unit(StrEnum):
    """Whose data is hidden."""

    CLIENT = "client"
    RECORD = "record"


class Secret(StrEnum):
    """What was drawn at random and must stay unknown to an observer against whom an event is credited."""

    PARTICIPATION = "participation"  # who took part, or which records were drawn
    ORDER = "order"  # which message is whose
    RUNS = "runs"  # how many runs there were, and all of them but the best


class Relation(StrEnum):
    """What a neighbouring dataset is."""

    ADD_REMOVE = "add_remove"  # the unit is, or is not, in the population
    REPLACE = "replace"  # its data are replaced by any other
    ZERO_OUT = "zero_out"  # it stays and replies, but its update is zero

    @property
    def words(self) -> str:
        """As it is written in a sentence."""
        return {"add_remove": "add/remove", "zero_out": "zero-out"}.get(self.value, self.value)

    def neighbours(self, unit: Unit) -> str:
        """What differs between two neighbouring datasets.

        >>> Relation.ADD_REMOVE.neighbours(Unit.CLIENT)
        'the client is or is not in the data'
        """
        match self:
            case Relation.ADD_REMOVE:
                return f"the {unit} is or is not in the data"
            case Relation.REPLACE:
                return f"the {unit}'s data are replaced by any other data"
        return f"the {unit} stays, but its contribution is zero"


class Event:
    """Something that happened to private data."""

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary with the event's name under `type`."""
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"type": type(self).__name__, **fields}

    def parts(self) -> tuple[Event, ...]:
        """The events directly inside this one, wherever in its fields they are; a leaf has none."""
        return tuple(_events(getattr(self, f.name) for f in dataclasses.fields(self)))  # type: ignore[arg-type]

    def walk(self) -> Iterator[Event]:
        """The event and everything inside it."""
        yield self
        for part in self.parts():
            yield from part.walk()

    def words(self) -> str:
        """What happened, as the end of a sentence.

        >>> Repeated(PoissonSampled(0.05, GaussianEvent(1.0)), 200).words()
        'Gaussian noise, standard deviation 1 x sensitivity, Poisson sampling at rate 0.05, composed 200 times'
        """
        return type(self).__name__

    @property
    def sampling(self) -> str:
        """How this event itself, apart from those inside it, draws or mixes what it shows; empty where it does not."""
        return ""

    @property
    def secret(self) -> Secret | None:
        """What the observer must not know for this event itself, apart from those inside it, to cost what it costs."""
        return None


def _events(values: Iterable[Any]) -> Iterator[Event]:
    for value in values:
        if isinstance(value, Event):
            yield value
        elif isinstance(value, tuple):
            yield from _events(value)


_REGISTRY: dict[str, type[Event]] = {}
EventType = TypeVar("EventType", bound=type[Event])


def register(cls: EventType) -> EventType:
    """Make an event known by name, so that a ledger can hold it."""
    _REGISTRY[cls.__name__] = cls
    return cls


def from_json(value: dict[str, Any]) -> Event:
    """The event that `to_json` wrote.

    >>> from_json(Repeated(GaussianEvent(1.0), 3).to_json())
    Repeated(event=GaussianEvent(ratio=1.0), times=3)
    """
    name = value.get("type", "")
    if name not in _REGISTRY:
        raise CannotAccount(f"the event {name!r} is not known. Import the module that registers it.")
    fields = {key: _unplain(item) for key, item in value.items() if key != "type"}
    if "relation" in fields:
        fields["relation"] = Relation(fields["relation"])
    return _REGISTRY[name](**fields)


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_json()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _unplain(value: Any) -> Any:
    if isinstance(value, dict):
        return from_json(value)
    return tuple(_unplain(item) for item in value) if isinstance(value, list) else value


def _check_probability(name: str, value: float) -> None:
    if not 0.0 < value <= 1.0:
        raise BadValue(f"{name}={value}: a probability above 0 and at most 1 is needed, e.g. 0.05.")


def _check_positive(name: str, value: float) -> None:
    if not (value > 0.0 and math.isfinite(value)):
        raise BadValue(f"{name}={value}: a positive, finite number is needed, e.g. 1.0.")


@register
@dataclass(frozen=True)
class Nothing(Event):
    """No private data was touched: costs 0."""

    def words(self) -> str:
        return "nothing that touches private data"


@register
@dataclass(frozen=True)
class NonPrivate(Event):
    """Private data was used without a proven guarantee: costs infinity."""

    reason: str = ""

    def words(self) -> str:
        return f"a step without a proven guarantee{f' ({self.reason})' if self.reason else ''}"


@register
@dataclass(frozen=True)
class GaussianEvent(Event):
    """Gaussian noise; `ratio` is its standard deviation over the L2 sensitivity."""

    ratio: Real

    def __post_init__(self) -> None:
        _check_positive("GaussianEvent ratio", self.ratio)

    def words(self) -> str:
        return f"Gaussian noise, standard deviation {self.ratio:.6g} x sensitivity"


@register
@dataclass(frozen=True)
class LaplaceEvent(Event):
    """Laplace noise on every coordinate; `ratio` is its scale over the L1 sensitivity."""

    ratio: Real

    def __post_init__(self) -> None:
        _check_positive("LaplaceEvent ratio", self.ratio)

    def words(self) -> str:
        return f"Laplace noise, scale {self.ratio:.6g} x L1 sensitivity"


@register
@dataclass(frozen=True)
class LaplaceBallEvent(Event):
    """Laplace noise on each of `dimension` coordinates under an L2 sensitivity; `ratio` is its scale over that."""

    ratio: Real
    dimension: int

    def __post_init__(self) -> None:
        _check_positive("LaplaceBallEvent ratio", self.ratio)
        if self.dimension < 1:
            raise BadValue(f"LaplaceBallEvent dimension={self.dimension}: at least 1 is needed.")

    def words(self) -> str:
        return f"Laplace noise, scale {self.ratio:.6g} x L2 sensitivity, on {self.dimension:,} coordinates"


@register
@dataclass(frozen=True)
class PureEvent(Event):
    """Anything that is epsilon-private by itself, with no delta: randomised response dominates it."""

    epsilon: Real

    def __post_init__(self) -> None:
        _check_positive("PureEvent epsilon", self.epsilon)

    def words(self) -> str:
        return f"a release of pure epsilon {self.epsilon:.6g}"


@register
@dataclass(frozen=True)
class StaircaseEvent(Event):
    """Scalar staircase noise whose step is the sensitivity: the density falls by e^-epsilon at `nu` of every step."""

    epsilon: Real
    nu: Real

    def __post_init__(self) -> None:
        _check_positive("StaircaseEvent epsilon", self.epsilon)
        if not 0.0 <= self.nu <= 1.0:
            raise BadValue(f"StaircaseEvent nu={self.nu}: the part of a step before it falls, from 0 to 1.")

    def words(self) -> str:
        return f"scalar staircase noise of pure epsilon {self.epsilon:.6g}, falling at {self.nu:.6g} of each step"


@register
@dataclass(frozen=True)
class StaircaseBallEvent(Event):
    """Scalar staircase noise on each of `dimension` coordinates by itself, under an L2 sensitivity; `ratio` is the step over it."""

    ratio: Real
    epsilon: Real
    nu: Real
    dimension: int

    def __post_init__(self) -> None:
        _check_positive("StaircaseBallEvent ratio", self.ratio)
        StaircaseEvent(self.epsilon, self.nu)
        if self.dimension < 1:
            raise BadValue(f"StaircaseBallEvent dimension={self.dimension}: at least 1 is needed.")

    def words(self) -> str:
        steps = f"steps of {self.ratio:.6g} x L2 sensitivity, each of epsilon {self.epsilon:.6g}"
        return f"staircase noise on each of {self.dimension:,} coordinates ({steps})"


@register
@dataclass(frozen=True)
class PoissonSampled(Event):
    """Each unit took part with probability `rate`, independently and in secret; those that did went through `event`.

    add_remove: the pair P against (1-rate) P + rate Q, where (P, Q) is the pair of `event`, in each direction by itself.
    replace (a Gaussian within): (1-rate) N(0) + rate N(+1/2) against (1-rate) N(0) + rate N(-1/2), in units of the
    sensitivity, which is the distance between the two alternatives (twice the clip norm).
    """

    rate: Real
    event: Event
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", Relation(self.relation))
        _check_probability("PoissonSampled rate", self.rate)

    def words(self) -> str:
        return f"{self.event.words()}, Poisson sampling at rate {self.rate:.6g}"

    @property
    def sampling(self) -> str:
        return f"Poisson, rate {self.rate:.6g}"

    @property
    def secret(self) -> Secret | None:
        return Secret.PARTICIPATION if self.rate < 1 else None


@register
@dataclass(frozen=True)
class FixedSizeSampled(Event):
    """A cohort of fixed size was drawn uniformly without replacement, in secret; `rate` is its share of the population.

    replace: the profile C_rate of the event's trade-off function (Dong, Roth, Su).
    add_remove: the pair N(0) against (1-rate) N(0) + rate N(1), where the sensitivity is twice the clip norm, because
    the new unit displaces another.
    """

    rate: Real
    event: Event
    relation: Relation = Relation.REPLACE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", Relation(self.relation))
        _check_probability("FixedSizeSampled rate", self.rate)

    def words(self) -> str:
        return f"{self.event.words()}, fixed-size sampling at rate {self.rate:.6g}"

    @property
    def sampling(self) -> str:
        return f"fixed size, rate {self.rate:.6g}"

    @property
    def secret(self) -> Secret | None:
        return Secret.PARTICIPATION if self.rate < 1 else None


@register
@dataclass(frozen=True)
class CuriousDraws(Event):
    """`curious` clients saw whether they were drawn themselves, into a cohort of `size` out of `population`.

    Without the unit there is one fewer to draw from, so they are drawn a little more often: two hypergeometric laws.
    """

    size: int
    population: int
    curious: int

    def __post_init__(self) -> None:
        if not (self.size >= 1 and self.curious >= 1 and self.size + self.curious < self.population):
            raise BadValue(
                f"{self}: cohort and curious clients must leave somebody out, also where the unit is not there."
            )

    def words(self) -> str:
        who = "a curious client" if self.curious == 1 else f"{self.curious} curious clients"
        return f"{who} may know their own draws ({self.size} of {self.population})"


@register
@dataclass(frozen=True)
class DiscreteGaussianEvent(Event):
    """Discrete Gaussian noise on whole numbers; `ratio` is its standard deviation over the L2 sensitivity.

    It is the sum of `shares` independent ones, each of standard deviation `share` in steps, on so many coordinates: a sum is
    not quite a discrete Gaussian, and how far from one depends on these. One share alone is.
    """

    ratio: Real
    shares: int = 1
    share: Real = 1.0
    dimension: int = 1

    def __post_init__(self) -> None:
        _check_positive("DiscreteGaussianEvent ratio", self.ratio)
        _check_positive("DiscreteGaussianEvent share", self.share)
        if not (self.shares >= 1 and self.dimension >= 1):
            raise BadValue(f"{self}: shares and dimension are whole numbers of at least 1.")

    def words(self) -> str:
        together = f" in {self.shares} shares" if self.shares > 1 else ""
        return f"discrete Gaussian noise, standard deviation {self.ratio:.6g} x sensitivity{together}"


@register
@dataclass(frozen=True)
class CappedPoissonSampled(Event):
    """A Poisson sample, cut down at random to at most `cap` units, in secret.

    `population` is the larger of the two neighbouring ones; `event` is relative to the sensitivity without the cap.
    """

    rate: Real
    cap: int
    population: int
    event: Event
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", Relation(self.relation))
        _check_probability("CappedPoissonSampled rate", self.rate)
        if not 1 <= self.cap <= self.population:
            raise BadValue(
                f"CappedPoissonSampled cap={self.cap}: from 1 to the population ({self.population}) is needed."
            )

    def words(self) -> str:
        return f"{self.event.words()}, Poisson sampling at rate {self.rate:.6g} capped at {self.cap}"

    @property
    def sampling(self) -> str:
        return f"Poisson, rate {self.rate:.6g}, at most {self.cap}"

    @property
    def secret(self) -> Secret | None:
        return Secret.PARTICIPATION if self.rate < 1 or self.cap < self.population else None


@register
@dataclass(frozen=True)
class Mixture(Event):
    """With `probability` the unit took part, visibly, and then `event` happened; otherwise nothing did.

    The observer sees which: the profile is the mixture (1-probability) identity + probability event (PRIVACY R1).
    """

    probability: Real
    event: Event

    def __post_init__(self) -> None:
        _check_probability("Mixture probability", self.probability)

    def words(self) -> str:
        return f"with probability {self.probability:.6g}: {self.event.words()}"

    @property
    def sampling(self) -> str:
        return f"participation with probability {self.probability:.6g}, which the observer sees"


@register
@dataclass(frozen=True)
class ByClient(Event):
    """What happened to a record depends on whose it is: `groups` gives some clients, by number, an event of their own.

    Costs what it costs the client that pays most. Who is in which group is public and stays so: repeating and composing add
    up what one and the same client went through (`inside.for_client`), never the worst of several.
    """

    default: Event
    groups: tuple[tuple[tuple[int, ...], Event], ...] = ()

    def words(self) -> str:
        others = "; ".join(f"{named(who)}: {own.words()}" for who, own in self.groups[:3])
        more = f"; and {len(self.groups) - 3} more groups of clients" if len(self.groups) > 3 else ""
        return f"[{self.default.words()}{f'; but {others}{more}' if others else ''}]"


def named(who: tuple[int, ...]) -> str:
    """Clients in words, not all of them where there are many."""
    first = ", ".join(map(str, who[:5]))
    more = f" and {len(who) - 5} more" if len(who) > 5 else ""
    return f"client{'' if len(who) == 1 else 's'} {first}{more}"


@register
@dataclass(frozen=True)
class Repeated(Event):
    """The same event `times` times, each free to depend on what the earlier ones released."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, int) or self.times < 1:
            raise BadValue(f"Repeated times={self.times}: a whole number of at least 1 is needed.")

    def words(self) -> str:
        within = self.event.words()
        return (
            f"composed {self.times:,} times ({within})"
            if isinstance(self.event, Mixture)
            else f"{within}, composed {self.times:,} times"
        )


@register
@dataclass(frozen=True)
class Composed(Event):
    """Different events in a row, each free to depend on what the earlier ones released."""

    events: tuple[Event, ...]

    def words(self) -> str:
        return "; then ".join(part.words() for part in self.events) or Nothing().words()


def compose(*events: Event) -> Event:
    """Events in a row, in the shortest form: nothing is left out, equal ones are counted together.

    >>> compose(GaussianEvent(1.0), Nothing(), Repeated(GaussianEvent(1.0), 2))
    Repeated(event=GaussianEvent(ratio=1.0), times=3)
    """
    counts: dict[Event, int] = {}

    def add(event: Event, times: int) -> None:
        if isinstance(event, Composed):
            for part in event.events:
                add(part, times)
        elif isinstance(event, Repeated):
            add(event.event, times * event.times)
        elif not isinstance(event, Nothing):
            counts[event] = counts.get(event, 0) + times

    for event in events:
        add(event, 1)
    parts = tuple(event if times == 1 else Repeated(event, times) for event, times in counts.items())
    return Nothing() if not parts else parts[0] if len(parts) == 1 else Composed(parts)


def why_not_private(event: Event) -> str | None:
    """The reason of the first step without a guarantee; None if every step has one.

    >>> why_not_private(Repeated(NonPrivate("no noise"), 3))
    'no noise'
    """
    return next((part.reason for part in event.walk() if isinstance(part, NonPrivate)), None)
