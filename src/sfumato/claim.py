"""A claim is what is provable at one point of a round, for one unit under one relation; pieces carry it onwards.

It starts with nothing bounded and nothing paid. `Clip` bounds the row, noise pays an event, and whatever follows payment is
free. A step that cannot be proven raises `UnsoundRound` with a reason that is itself true.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from sfumato.account.event import Event, Relation, Unit
from sfumato.errors import UnsoundRound


@runtime_checkable
class Sampling(Protocol):
    """What a claim needs to know of the sampler."""

    def stretch(self, relation: Relation) -> int:
        """How many times one row's norm the sum of the drawn rows can move when one unit changes."""

    def amplified(self, event: Event, claim: Claim) -> Event:
        """The event of one round for whoever does not see the cohort."""

    def observed(self, event: Event, claim: Claim) -> Event:
        """The event of one round for whoever sees the cohort."""


@dataclass(frozen=True)
class Claim:
    """What is provable here.

    `l2` and `l1` bound the norm of one client's row (once aggregated: of its part in the aggregate), whatever its data.
    `world` and `server` are the events that a round costs against everyone who sees the model and against the server;
    None means that nothing has been paid there.
    """

    unit: Unit
    relation: Relation
    population: int
    dimension: int
    sampling: Sampling | None = None
    l2: float = math.inf
    l1: float = math.inf
    aggregated: bool = False
    world: Event | None = None
    server: Event | None = None
    stddev: float | None = None
    noise_sensitivity: float | None = None
    assumptions: tuple[str, ...] = ()
    share_count: int = 0  # how many honest shares that noise was divided into
    share: float | None = None  # standard deviation of the noise in one message, of which only the sum is accounted
    remembers: bool = False  # clients keep something between rounds
    local_paid: bool = False  # what local training gives is private already

    @property
    def sizes_are_public(self) -> bool:
        """Whether a client's number of records is the same in every neighbouring world."""
        return self.unit is Unit.RECORD and self.relation is Relation.REPLACE

    @property
    def paid(self) -> bool:
        """Whether the value is already private, so that anything may be done to it."""
        return self.world is not None

    def sensitivity(self, radius: float) -> float:
        """How far one unit can move the sum of the drawn rows, if every row's norm is at most `radius`."""
        assert self.sampling is not None, "the sampler comes first"
        return radius * self.stretch

    @property
    def stretch(self) -> int:
        """One row's norm for add/remove and zero-out, two where a row turns into another."""
        assert self.sampling is not None, "the sampler comes first"
        return 2 if self.unit is Unit.RECORD else self.sampling.stretch(self.relation)

    def at_client(self, who: object) -> Claim:
        """The claim, if this piece stands in the client slot, where rows are still rows."""
        if self.aggregated:
            raise UnsoundRound(
                f"{text(who)} works on clients' rows, but here they are already added up.",
                "move it to the client slot.",
            )
        return self

    def at_server(self, who: object) -> Claim:
        """The claim, if this piece stands in the server slot, where there is one row for all."""
        if not self.aggregated:
            raise UnsoundRound(
                f"{text(who)} works on the aggregate, but here are still clients' rows.", "move it to the server slot."
            )
        return self

    def scaled(self, factor: float) -> Claim:
        """The claim after the value was multiplied by a public number."""
        return replace(self, l2=self.l2 * factor, l1=self.l1 * factor)

    def bounded(self, *, l2: float = math.inf, l1: float = math.inf) -> Claim:
        """The claim after a row's norms were bounded; each norm also bounds the other."""
        l2 = min(self.l2, l2, l1)
        return replace(self, l2=l2, l1=min(self.l1, l1, math.sqrt(self.dimension) * l2))

    def assuming(self, *sentences: str) -> Claim:
        """The claim with further assumptions, which every guarantee prints."""
        return replace(self, assumptions=tuple(dict.fromkeys((*self.assumptions, *sentences))))

    def __str__(self) -> str:
        if self.paid:
            return "private: whatever follows is free"
        share = ", a share of the noise added" if self.share is not None else ""
        if math.isinf(self.l2):
            return "one client can move it without bound"
        what = "the aggregate" if self.aggregated else "a message"
        return f"{what} moves by at most {self.l2 * self.stretch:.6g}{share}"


def text(piece: Any) -> str:
    """A piece as it would be written, without the fields that are at their defaults. Python reads it back.

    >>> from sfumato.account.event import PoissonSampled, GaussianEvent
    >>> text(PoissonSampled(0.5, GaussianEvent(1.0)))
    'PoissonSampled(rate=0.5, event=GaussianEvent(ratio=1.0))'
    """
    if isinstance(piece, StrEnum):
        return f"{type(piece).__name__}.{piece.name}"
    if not dataclasses.is_dataclass(piece):
        return repr(piece)
    said = []
    for part in dataclasses.fields(piece):
        value = getattr(piece, part.name)
        default = part.default if part.default_factory is dataclasses.MISSING else part.default_factory()
        if part.repr and (default is dataclasses.MISSING or value != default):
            said.append(f"{part.name}={text(value)}")
    return f"{type(piece).__name__}({', '.join(said)})"


@dataclass(frozen=True)
class Step:
    """One line of a derivation: the slot, the piece, and what is provable after it; why nothing is, if not `proven`."""

    slot: str
    piece: str
    states: str
    proven: bool = True

    @property
    def words(self) -> str:
        """What it states, as it is shown."""
        return self.states if self.proven else f"not proven: {self.states}"


Steps: TypeAlias = tuple[Step, ...]


def table(steps: Steps) -> str:
    """A derivation as aligned lines of text."""
    widths = [max((len(getattr(step, word)) for step in steps), default=0) for word in ("slot", "piece")]
    return "\n".join(f"    {s.slot:<{widths[0]}}  {s.piece:<{widths[1]}}  {s.words}" for s in steps)
