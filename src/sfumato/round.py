"""A federated round is a row of slots; building one refuses what is wrong for every population."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from sfumato.account.event import Event, Unit
from sfumato.claim import text
from sfumato.derive import Derivation, derive, pieces
from sfumato.errors import UnsoundRound
from sfumato.pieces.channel import Plain
from sfumato.pieces.optimizer import GradientDescent
from sfumato.pieces.protocol import (
    SLOTS,
    Aggregate,
    Channel,
    ClientPiece,
    ControlPiece,
    LocalPiece,
    MessageAggregate,
    Optimizer,
    PersonalPiece,
    Sampler,
    ServerPiece,
    abstract,
    form,
)

_LONGEST = 600  # characters of a round that is shown
# Any numbers would do: what is refused at these is refused everywhere.
_MANY_CLIENTS, _SOME_DIMENSION = 10**9, 1000


@runtime_checkable
class Formula(Protocol):
    """What a paper prints of the cost of its rounds."""

    @abstractmethod
    def claimed_epsilon(self, rounds: int, delta: float) -> float:
        """What it says of so many rounds, at this delta."""


@dataclass(frozen=True)
class Unproven:
    """A claim of a paper that we could not prove: the run trains, and its guarantee says so.

    `claimed` is the paper's own formula; where it prints none, the event of one round as the paper has it.
    """

    paper: str = ""
    step: str = ""
    claimed: Event | Formula | None = None


@dataclass(frozen=True, repr=False)
class Round:
    """One round: sample, local, client, channel, aggregate, server, optimizer, personal.

    `unit` says whose data must be hidden: a round that cannot prove that is refused, and what is proven for the other unit
    is reported beside it. `derive(population=, dimension=)` gives the event of a round for each unit and each view.
    `nonprivate=True` is the explicit baseline; `unproven=True` (or the paper's claim) trains what could not be proven, and
    prints no epsilon.
    """

    sample: Sampler
    local: LocalPiece
    aggregate: Aggregate | MessageAggregate
    client: tuple[ClientPiece, ...] = ()
    server: tuple[ServerPiece, ...] = ()
    channel: Channel = field(default_factory=Plain)
    optimizer: Optimizer = field(default_factory=GradientDescent)
    personal: PersonalPiece | ControlPiece | None = None
    unit: Unit = Unit.CLIENT
    unproven: bool | Unproven = False
    nonprivate: bool = False

    def __post_init__(self) -> None:
        for slot, piece in pieces(self):
            if not callable(getattr(piece, "carry", None)):
                raise UnsoundRound(
                    f"{text(piece)} in the {slot} slot states nothing: it has no carry(claim), so nobody knows what "
                    "it does to the bound.",
                    "give it a method carry(claim) -> claim that says what holds after it, and check it with sfumato.testing.",
                )
        for slot, piece in pieces(self):
            _check_slot(slot, piece)
        self.derive(population=_MANY_CLIENTS, dimension=_SOME_DIMENSION)

    def __repr__(self) -> str:
        words = text(self)
        return (
            words if len(words) <= _LONGEST else f"{words[: _LONGEST - 4]} ..."
        )  # one that names many clients is long

    def units(self, population: int) -> int:
        """How many units are declared: clients, or records where these are protected, as many as are declared of each client."""
        return population * (self.local.declared_records() if self.unit is Unit.RECORD else 1)

    def derive(self, *, population: int, dimension: int) -> Derivation:
        """What one round costs, at this population and dimension."""
        return derive(self, population, dimension)


def _check_slot(slot: str, piece: object) -> None:
    """A piece that could stand elsewhere would be credited and never run; one without its slot's hooks could not be run."""
    protocol = form(slot, piece)
    missing = [name for name in abstract(protocol) if not hasattr(piece, name)]
    if missing:
        raise UnsoundRound(
            f"{text(piece)} does not belong in the {slot} slot: it lacks {' and '.join(missing)}, so it would state something and "
            "never be run.",
            f"put a piece for the {slot} slot there.",
        )
    if isinstance(piece, protocol):
        return
    other = next((name for name, its in SLOTS.items() if isinstance(piece, its)), None)
    if other is not None:
        raise UnsoundRound(f"{text(piece)} works in the {other}, not the {slot} slot.", f"move it to the {other} slot.")
    raise UnsoundRound(
        f"{text(piece)} in the {slot} slot lacks hooks that the engine asks for, and defaults for them.",
        f"derive it from the slot's protocol: class {type(piece).__name__}({protocol.__name__}), of sfumato.pieces.protocol.",
    )
