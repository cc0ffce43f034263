"""A claim is what is provable at one point of a round, for one unit under one relation; pieces carry it onwards.

It starts with nothing bounded and nothing paid. `Clip` bounds the row, noise pays an event, and whatever follows payment is
free. A step that cannot be proven raises `UnsoundRound` with a reason that is itself true.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from sfumato.account.event import Event, Mixture, Relation, Unit
from sfumato.errors import UnsoundRound


@dataclass(frozen=True)
class Reach:
    """How far one unit can move a value, in the L2 and in the L1 norm, and how many coordinates the value has (0: not said)."""

    l2: float = math.inf
    l1: float = math.inf
    dimension: int = 0

    def coordinates(self, who: object) -> int:
        """How many coordinates the value has, for a law whose cost depends on it."""
        if self.dimension < 1:
            raise UnsoundRound(
                f"{text(who)}: what it costs depends on the number of coordinates, which the sampler's reach does not say.",
                "let the sampler give claim.row, claim.rows_apart or claim.moved, or use Gaussian noise.",
            )
        return self.dimension

    def plus(self, other: Reach) -> Reach:
        """As far as both together."""
        return replace(self, l2=self.l2 + other.l2, l1=self.l1 + other.l1)

    def scaled(self, factor: float) -> Reach:
        """So many times as far."""
        return replace(self, l2=self.l2 * factor, l1=self.l1 * factor)

    def least(self, other: Reach) -> Reach:
        """As far as both allow."""
        return replace(self, l2=min(self.l2, other.l2), l1=min(self.l1, other.l1))

    def within(self, l2: float, l1: float, dimension: int) -> Reach:
        """After the norms were bounded; each norm also bounds the other."""
        l2 = min(self.l2, l2, l1)
        return replace(self, l2=l2, l1=min(self.l1, l1, math.sqrt(dimension) * l2))


Release: TypeAlias = Callable[[Reach], Event]  # what it costs to release a value once, if a unit can move it so far


@runtime_checkable
class Sampling(Protocol):
    """What a claim needs to know of the sampler: the only source of how far one unit moves the sum of the drawn rows."""

    @abstractmethod
    def chance(self, claim: Claim) -> float:
        """The chance that a client is drawn, for those who look."""

    @abstractmethod
    def reach(self, claim: Claim, seen: bool) -> Reach:
        """How far one unit moves the sum of the drawn rows: for those who see the cohort, or for those who do not."""

    @abstractmethod
    def amplified(self, release: Release, claim: Claim) -> Event:
        """The event of one round for whoever does not see the cohort."""

    def cohort_size(self, claim: Claim) -> int | None:
        """How many are drawn, if it is always the same number (default: it varies, so noise shares are refused)."""
        return None

    @property
    def curious(self) -> int:
        """How many clients pool what they know: who was drawn, and their own shares of noise (default: 1)."""
        return 1


@runtime_checkable
class LawOfNoise(Protocol):
    """What a claim needs to know of a law of noise."""

    def event(self, stddev: float, reach: Reach) -> Event:
        """What one release costs, if a unit can move it so far."""

    def distance(self, reach: Reach) -> float:
        """How far a unit moves the value, in the norm that the law has a proof for."""


@dataclass(frozen=True)
class Claim:
    """What is provable here.

    `l2` and `l1` bound the norm of one client's row (once aggregated: of its part in the aggregate), whatever its data.
    `world` and `server` are the events that a round costs against anyone who sees the released models and against the server,
    and `chooser` against a server that chooses the cohort; None means that nothing has been paid there.

    Where pieces treat clients differently, a claim is that of one `client` among others (None: of all whom no piece names).
    `l2` and `l1` still bound everybody's rows, and noise is a multiple of them; `row` is what bounds this client's own.

    Rows that are no arbitrary vectors may lie closer together than twice their norm: `apart` bounds the distance of any two
    that anybody may send, `record` how far one record moves a row. A row of `parts` has an equal share of every bound in each:
    l2 / sqrt(parts) and l1 / parts. Only pieces that say so (`keeps_distances`) carry these three on.
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
    chooser: Event | None = None
    stddev: float | None = None
    noise_sensitivity: float | None = None
    assumptions: tuple[str, ...] = ()
    share_law: LawOfNoise | None = None  # the law of the noise that shares add up to
    share_count: int = 0  # how many honest shares that noise was divided into
    share: float | None = None  # standard deviation of the noise in one message, of which only the sum is accounted
    remembers: bool = False  # clients keep something between rounds
    local_paid: bool = False  # what local training gives is private already
    relation_is_asked: bool = False  # no piece may choose another relation
    grid: float | None = None  # every coordinate is a whole number of such steps, a power of 2, and so are their sums
    every: int = 1  # the events are due in the first of so many rounds, and pay for all of them
    alike: bool = True  # all clients do the same with their data, and with what carries their noise
    nearer: bool = False  # a unit moves a message by less than the messages of two clients may be apart
    only_sum: bool = False  # the server does not see single messages
    shuffled: bool = False  # nor who sent them, or how many records they speak of
    client: int | None = None  # whose claim it is
    until: int | None = None  # how many rounds this client takes part in, counted from the first; None: in all
    apart: Reach = Reach()
    record: Reach = Reach()
    parts: int = 1
    narrow: tuple[Reach, Reach] | None = None  # bounds of this client's own row, and those of all that they go with

    @property
    def sizes_are_public(self) -> bool:
        """Whether a client's number of records is the same in every neighbouring world."""
        return self.unit is Unit.RECORD and self.relation is Relation.REPLACE

    @property
    def paid(self) -> bool:
        """Whether the value is already private, so that anything may be done to it."""
        return self.world is not None

    @property
    def row(self) -> Reach:
        """How far this client's row is from zero: a unit that comes, goes or falls silent.

        Bounds of its own count only while those of all are the ones that they were stated with: after a piece that knows
        nothing of them, the bounds of all hold, which are never smaller.
        """
        if self.narrow is not None and self.narrow[1] == self.any_row:
            return self.narrow[0]
        return self.any_row

    @property
    def any_row(self) -> Reach:
        """How far anybody's row is from zero."""
        return Reach(self.l2, self.l1, self.dimension)

    @property
    def rows_apart(self) -> Reach:
        """How far two possible rows of this client are from each other: a unit whose data are swapped."""
        return self.row.scaled(2.0).least(self.apart)

    @property
    def displaced(self) -> Reach:
        """How far this client's row is from that of any other, whom it displaces in a cohort."""
        return self.row.plus(self.any_row).least(self.apart)

    @property
    def moved(self) -> Reach:
        """How far one unit moves a sum of rows: its row comes or goes, or turns into another where its data are swapped."""
        if self.unit is Unit.RECORD:
            return self.rows_apart.least(self.record)
        return self.rows_apart if self.relation is Relation.REPLACE else self.row

    @property
    def barely_moves(self) -> bool:
        """Whether one record moves a row by less than the row may be long: drawing clients at random then hides little of it."""
        return self.unit is Unit.RECORD and self.moved.l2 < self.row.l2

    def reach(self, seen: bool = False) -> Reach:
        """How far one unit moves the sum of the drawn rows, for those who see the cohort or for those who do not."""
        assert self.sampling is not None, "the sampler comes first"
        return self.sampling.reach(self, seen)

    def amplified(self, release: Release) -> Event:
        """A round's event for those who do not see the cohort."""
        assert self.sampling is not None, "the sampler comes first"
        return self.sampling.amplified(release, self)

    def taking_part(self, release: Release) -> Event:
        """A round's event for whoever sees the cohort and may have chosen it: as if the client always took part (R1)."""
        if self.presence_is_hidden:
            raise UnsoundRound(
                "whoever sees who takes part sees whether a client is there, so under add/remove nothing can be hidden from them.",
                "use relation='replace' or 'zero_out' in the sampler.",
            )
        return release(self.reach(seen=True))

    def observed(self, release: Release) -> Event:
        """A round's event for whoever sees the cohort, which was drawn honestly: it happens when the client is drawn (R1)."""
        assert self.sampling is not None, "the sampler comes first"
        event, chance = self.taking_part(release), self.sampling.chance(self)
        return event if chance == 1.0 else Mixture(chance, event)

    @property
    def presence_is_hidden(self) -> bool:
        """Whether a neighbouring world may lack the client altogether."""
        return self.unit is Unit.CLIENT and self.relation is Relation.ADD_REMOVE

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
        scaled = replace(self, apart=self.apart.scaled(factor), record=self.record.scaled(factor))
        return scaled._with_rows(self.any_row.scaled(factor), self.row.scaled(factor))

    def with_dimension(self, dimension: int) -> Claim:
        """The claim after coordinates were left out, which makes no norm larger."""
        any_row, row = (replace(reach, dimension=dimension) for reach in (self.any_row, self.row))
        return replace(self, dimension=dimension)._with_rows(any_row, row)

    def bounded(self, *, l2: float = math.inf, l1: float = math.inf) -> Claim:
        """The claim after a row's norms were bounded; each norm also bounds the other."""
        any_row, row = (reach.within(l2, l1, self.dimension) for reach in (self.any_row, self.row))
        return self._with_rows(any_row, row)

    def narrowed(self, own: Reach) -> Claim:
        """The claim, if this client's own row is bounded by `own`, which is no more than the bounds of all."""
        return self._with_rows(self.any_row, own)

    def closer(self, apart: Reach, record: Reach, parts: int = 1) -> Claim:
        """The claim, if any two rows are at most `apart`, and one record moves a row by at most `record`.

        A row may always be missing, which is zero: so no two are closer than one is long.
        """
        apart = replace(apart, l2=max(apart.l2, self.l2), l1=max(apart.l1, self.l1))
        return replace(self, apart=apart, record=record.least(apart), parts=parts)

    def _with_rows(self, any_row: Reach, row: Reach) -> Claim:
        return replace(self, l2=any_row.l2, l1=any_row.l1, narrow=None if row == any_row else (row, any_row))

    def clipped(self, norm: float, order: int) -> Claim:
        """The claim after a row was scaled down to this norm: L1 (`order` 1) or L2 (`order` 2)."""
        return self.bounded(l1=norm) if order == 1 else self.bounded(l2=norm)

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
        steps = f", in whole steps of {self.grid:.3g}" if self.grid is not None else ""
        return f"{what} moves by at most {self.reach().l2:.6g}{steps}{share}"


def text(piece: Any) -> str:
    """A piece as it would be written, without the fields that are at their defaults. Python reads it back.

    >>> from sfumato.account.event import PoissonSampled, GaussianEvent
    >>> text(PoissonSampled(0.5, GaussianEvent(1.0)))
    'PoissonSampled(rate=0.5, event=GaussianEvent(ratio=1.0))'
    """
    if isinstance(piece, StrEnum):
        return f"{type(piece).__name__}.{piece.name}"
    if isinstance(piece, tuple):
        return f"({', '.join(map(text, piece))}{',' if len(piece) == 1 else ''})"
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
        return self.states if self.proven else f"not proven: {self.states}"


Steps: TypeAlias = tuple[Step, ...]


def table(steps: Steps) -> str:
    """A derivation as aligned lines of text."""
    widths = [max((len(getattr(step, word)) for step in steps), default=0) for word in ("slot", "piece")]
    return "\n".join(f"    {s.slot:<{widths[0]}}  {s.piece:<{widths[1]}}  {s.words}" for s in steps)
