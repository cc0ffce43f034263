"""A federated round is a row of slots; building one refuses what is wrong for every population."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from sfumato.account.event import Event, Relation, Unit
from sfumato.claim import Claim, text
from sfumato.derive import Derivation, derive, pieces
from sfumato.errors import UnsoundRound
from sfumato.key import Key
from sfumato.pieces.channel import Plain
from sfumato.pieces.context import Context
from sfumato.pieces.optimizer import GradientDescent, State

# Any numbers would do: what is refused at these is refused everywhere.
_MANY_CLIENTS, _SOME_DIMENSION = 10**9, 1000


@runtime_checkable
class Stating(Protocol):
    """Every piece states what it proves."""

    def carry(self, claim: Claim) -> Claim:
        """The claim after this piece."""


@runtime_checkable
class Sampler(Stating, Protocol):
    """Draws the cohort, and states relation and amplification."""

    @property
    def relation(self) -> Relation:
        """What a neighbouring population looks like."""

    def draw(self, population: int, key: Key) -> np.ndarray:
        """The numbers of the drawn clients."""

    def expected(self, population: int) -> float:
        """The expected cohort: a public number."""


@runtime_checkable
class RowPiece(Stating, Protocol):
    """Changes rows at the client, or the aggregate at the server."""

    def __call__(self, value: torch.Tensor, context: Context, /) -> torch.Tensor:
        """The new value."""


@runtime_checkable
class Aggregate(Stating, Protocol):
    """Adds rows; partial sums add."""

    def weights(self, sizes: torch.Tensor) -> torch.Tensor:
        """How much each row counts."""

    def finish(self, total: torch.Tensor, weight: float) -> torch.Tensor:
        """The aggregate from the weighted sum and the sum of the weights."""


@runtime_checkable
class Optimizer(Stating, Protocol):
    """Moves the parameters."""

    def start(self, params: torch.Tensor) -> State:
        """The first state."""

    def step(self, params: torch.Tensor, state: State, update: torch.Tensor) -> tuple[torch.Tensor, State]:
        """New parameters and state."""


@dataclass(frozen=True)
class Unproven:
    """A claim of a paper that we could not prove: the run trains, and its guarantee says so."""

    paper: str = ""
    step: str = ""
    claimed: Event | None = None


@dataclass(frozen=True)
class Round:
    """One round: sample, local, client, channel, aggregate, server, optimizer, personal.

    `unit` says whose data must be hidden: a round that cannot prove that is refused, and what is proven for the other unit
    is reported beside it. `derive(population=, dimension=)` gives the event of a round for each unit and each view.
    `nonprivate=True` is the explicit baseline; `unproven=True` (or the paper's claim) trains what could not be proven, and
    prints no epsilon.
    """

    sample: Sampler
    local: Any
    aggregate: Aggregate
    client: tuple[Any, ...] = ()  # RowPiece each; what states nothing is refused with its reason
    server: tuple[Any, ...] = ()
    channel: Stating = field(default_factory=Plain)
    optimizer: Optimizer = field(default_factory=GradientDescent)
    personal: Any = None
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

    def derive(self, *, population: int, dimension: int) -> Derivation:
        """What one round costs, at this population and dimension."""
        return derive(self, population, dimension)


# What the engine asks of a piece in each slot. A piece that could stand elsewhere would be credited and never run.
_NEEDS = {
    "sample": ("draw", "relation", "chance", "reach", "amplified", "cohort", "curious"),
    "local": ("train",),
    "client": ("__call__",),
    "channel": ("shows",),
    "aggregate": ("weights", "finish"),
    "server": ("__call__",),
    "optimizer": ("start", "step"),
    "personal": ("keep",),
}


def _check_slot(slot: str, piece: Any) -> None:
    missing = [name for name in _NEEDS[slot] if not (callable(piece) if name == "__call__" else hasattr(piece, name))]
    if missing:
        raise UnsoundRound(
            f"{text(piece)} does not belong in the {slot} slot: it lacks {' and '.join(missing)}, so it would state something and "
            "never be run.",
            f"put a piece for the {slot} slot there.",
        )
