"""What each slot of a round asks of its piece: every hook with its name, its default and a sentence.

A piece derives from the protocol of its slot, writes what is abstract there, and inherits the rest. This file loads no torch.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from sfumato.claim import Claim, Sampling, text
from sfumato.errors import BadValue

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor, nn

    from sfumato.account.event import Relation
    from sfumato.data.population import Records
    from sfumato.gradients import LossPerRecord
    from sfumato.key import Key
    from sfumato.local.task import Task
    from sfumato.objective import Objective
    from sfumato.pieces.context import Context, Facts, MessageContext, StepContext
    from sfumato.update import Layout

State: TypeAlias = "dict[str, torch.Tensor]"


@runtime_checkable
class Piece(Protocol):
    """Every piece states what it proves."""

    @abstractmethod
    def carry(self, claim: Claim) -> Claim:
        """The claim after this piece; `UnsoundRound` where nothing holds."""

    def unproven(self, claim: Claim) -> Claim:
        """How a round without a guarantee goes on past a refusal (default: as it was)."""
        return claim

    @property
    def keeps_grid(self) -> bool:
        """Whether whole numbers of a grid's steps stay such (default: no, so exact noise after it is refused)."""
        return False

    @property
    def keeps_distances(self) -> bool:
        """Whether rows come no further apart than it states for their norms (default: no, so distances are forgotten)."""
        return False

    @property
    def named(self) -> tuple[tuple[int, ...], ...]:
        """Clients that it treats in a way of their own, by number, those alike together (default: none)."""
        return ()

    @property
    def by_number(self) -> bool:
        """Whether clients with other numbers would be treated in another way (default: where it names some)."""
        return bool(self.named)


class Noisy(Protocol):
    """A piece that may draw noise which can be calibrated."""

    def noise_and_norm(self) -> tuple[float, float | None] | None:
        """The noise multiplier, and the norm that it is a multiple of if the piece knows it (default: no noise)."""
        return None

    def with_noise(self, noise_multiplier: float) -> Any:
        """The same piece with other noise; needed where `noise_and_norm` gives one."""
        raise BadValue(f"{text(self)} draws no noise that could be chosen. Give the round AddNoise, or DpSgd.")


@dataclass(frozen=True)
class Turn:
    """Which round a cohort is drawn for: its number, its own key, and one that stays the same until the run ends or is resumed."""

    round: int
    key: Key
    run: Key


@runtime_checkable
class Sampler(Piece, Sampling, Protocol):
    """Draws the cohort, and states relation and amplification. Its keys are the server's."""

    relation: Relation  # What a neighbouring population looks like.

    @abstractmethod
    def cohort(self, population: int, turn: Turn) -> np.ndarray:
        """The numbers of the clients that take part in a round."""

    @abstractmethod
    def expected(self, population: int) -> float:
        """The expected cohort: a public number."""


@runtime_checkable
class FreshSampler(Sampler, Protocol):
    """A sampler that draws anew every round, whatever the round's number."""

    @abstractmethod
    def draw(self, population: int, key: Key) -> np.ndarray:
        """The numbers of the drawn clients, or of the drawn records of a batch."""

    def cohort(self, population: int, turn: Turn) -> np.ndarray:
        """The numbers of the clients that take part in a round."""
        return self.draw(population, turn.key)


@runtime_checkable
class LocalPiece(Piece, Noisy, Protocol):
    """What a client computes: one row."""

    @abstractmethod
    def train(self, task: Task) -> Tensor:
        """The rows of a block of clients, one each, in the order given."""

    def prepare(self, facts: Facts) -> Tensor | None:
        """What all clients share in a round, from public facts: `task.shared` (default: nothing)."""
        return None

    def message_length(self, layout: Layout) -> int:
        """How many coordinates a row has (default: as many as the model has trainable parameters)."""
        return layout.dimension

    def check(self, module: nn.Module, loss: LossPerRecord, example: Records) -> None:
        """Refuse a module or a loss before anything is spent (default: take any)."""
        return

    def declared_records(self) -> int:
        """How many records each client is declared to have at least (default: one)."""
        return 1

    def trial(self) -> tuple[LocalPiece, int] | None:
        """A short version for measuring, and how many made-up records it wants; None: a core for each (default: itself, 32)."""
        return self, 32

    def controlled(self, round: int) -> float | None:
        """The sum of a round's learning rates, if every step adds `task.corrections` to its gradient (default: it does not)."""
        return None

    @property
    def one_by_one(self) -> bool:
        """Whether clients are trained one after another, whatever the block (default: no)."""
        return False

    @property
    def records_apart(self) -> bool:
        """Whether `train` leaves out single records at fault, `task.faults` (default: no; a failure makes the whole row zero)."""
        return False

    @property
    def fresh_rows(self) -> bool:
        """Whether nobody else holds the memory of the rows that `train` gives (default: no, so they are copied)."""
        return False


@runtime_checkable
class ServerPiece(Piece, Noisy, Protocol):
    """Changes the aggregate. Its key is secret; it may ask for its own keys of other rounds."""

    @abstractmethod
    def __call__(self, value: Tensor, context: Context, /) -> Tensor:
        """The new value."""

    def start(self) -> Tensor | None:
        """What is kept before the first round (default: nothing)."""
        return None

    def follow(self, value: Tensor, context: Context) -> Tensor | None:
        """What is kept for the next round, from the value that came out and `context.state` (default: what was kept)."""
        return context.state


@runtime_checkable
class ClientPiece(Piece, Noisy, Protocol):
    """Changes rows before they leave the client. Its key is shared by all clients, `context.keys` are theirs alone."""

    @abstractmethod
    def __call__(self, rows: Tensor, context: Context, /) -> Tensor:
        """The new rows; each depends on its own row, size and key only."""

    def start(self) -> Tensor | None:
        """What is kept before the first round: a public value (default: nothing)."""
        return None

    def prepare(self, facts: Facts) -> Tensor | None:
        """What all clients share in a round, from public facts (default: nothing)."""
        return None

    def undo(self, value: Tensor, context: Context) -> Tensor:
        """What was done to the value's shape or scale, undone at the server once it is paid for (default: nothing)."""
        return value

    def follow(self, value: Tensor, context: Context) -> Tensor | None:
        """What is kept for the next round, from the paid value before `undo` (default: what was kept)."""
        return context.state

    @property
    def needs_previous(self) -> bool:
        """Whether `prepare` reads the last release (default: no)."""
        return False


@runtime_checkable
class Channel(Piece, Protocol):
    """What the server sees of the messages."""

    shows: ClassVar[str]  # What the server sees, in words.

    @property
    def receiver(self) -> str:
        """Who the messages are for, in words (default: the server)."""
        return "the server"

    @property
    def sees_before_noise(self) -> str:
        """Why nothing may be proven against the receiver, in words (default: the messages come without noise)."""
        return "it sees the messages before any noise"

    @property
    def simulated(self) -> str:
        """What a guarantee says where one process plays this channel, and sees more than it shows (default: nothing)."""
        return ""

    def order(self, count: int, key: Key) -> np.ndarray | None:
        """The order in which the server sees the messages, which then have no senders (default: as they were sent)."""
        return None


@runtime_checkable
class Aggregate(Piece, Protocol):
    """Adds rows; partial sums add."""

    @abstractmethod
    def weights(self, sizes: Tensor) -> Tensor:
        """How much each row counts."""

    @abstractmethod
    def finish(self, total: Tensor, weight: float) -> Tensor:
        """The aggregate from the weighted sum and the sum of the weights."""

    @property
    def divisor(self) -> float | None:
        """The public constant that the sum is divided by (default: there is none)."""
        return None


@runtime_checkable
class MessageAggregate(Piece, Protocol):
    """Makes one row of messages that it sees one by one. All of them are in memory at once: cohort times coordinates."""

    @abstractmethod
    def combine(self, messages: Tensor, context: MessageContext) -> Tensor:
        """The aggregate of at least one message, in the order in which the server sees them."""

    def unproven(self, claim: Claim) -> Claim:
        """How a round without a guarantee goes on past a refusal (default: with one row)."""
        return replace(claim, aggregated=True)

    @property
    def by_number(self) -> bool:
        """Whether the order of messages matters, which is that of the clients' numbers (default: it may)."""
        return True


@runtime_checkable
class Optimizer(Piece, Protocol):
    """Makes new parameters from what was released."""

    @abstractmethod
    def learn(self, params: Tensor, state: State, update: Tensor, context: StepContext) -> tuple[Tensor, State]:
        """New parameters and state, from the release, the layout, the module, the objective and the server's key."""

    def start(self, params: Tensor) -> State:
        """The first state (default: none)."""
        return {}

    def check(self, module: nn.Module, objective: Objective, length: int) -> None:
        """Refuse a module, an objective or releases of this length before anything is spent (default: take any)."""
        return

    def report(self, params: Tensor, state: State) -> Tensor:
        """The parameters to show and to keep (default: those from which training goes on)."""
        return params


@runtime_checkable
class StepRule(Optimizer, Protocol):
    """An optimizer that needs the update only, which is as long as the parameters; private local training steps by it too."""

    @abstractmethod
    def step(self, params: Tensor, state: State, update: Tensor) -> tuple[Tensor, State]:
        """One step along the update."""

    def learn(self, params: Tensor, state: State, update: Tensor, context: StepContext) -> tuple[Tensor, State]:
        """One step along the update."""
        return self.step(params, state, update)


@runtime_checkable
class PersonalPiece(Piece, Protocol):
    """Models that stay at the client."""

    @abstractmethod
    def keep(self, own: Tensor, params: Tensor, client: int) -> Tensor:
        """What a client stores after a round, from its own trained model and the new global one: its next start."""


@runtime_checkable
class ControlPiece(Piece, Protocol):
    """What clients remember of the messages that they sent, and add to every gradient of their next round.

    Rows are in the model's own coordinates; `own` and `messages` hold one for each of some clients. `length` is the sum of a
    round's learning rates, as `controlled` of local training says it.
    """

    @abstractmethod
    def correction(self, own: Tensor, shared: Tensor) -> Tensor:
        """What clients add to their gradients: from what each remembers (zeros at first) and what the server keeps."""

    @abstractmethod
    def remember(self, own: Tensor, shared: Tensor, messages: Tensor, length: float) -> Tensor:
        """What each client remembers, from the message that it sent."""

    @abstractmethod
    def follow(self, shared: Tensor, release: Tensor, length: float, share: float) -> Tensor:
        """What the server keeps (zeros at first), from the release and the expected share of clients that took part."""


SLOTS: dict[str, type[Any]] = {
    "sample": Sampler,
    "local": LocalPiece,
    "client": ClientPiece,
    "channel": Channel,
    "aggregate": Aggregate,
    "server": ServerPiece,
    "optimizer": Optimizer,
    "personal": PersonalPiece,
}

SECOND_FORMS: dict[str, type[Any]] = {"aggregate": MessageAggregate, "personal": ControlPiece}


def form(slot: str, piece: object) -> type[Any]:
    """The protocol of a slot that a piece is held to."""
    other = SECOND_FORMS.get(slot)
    return other if other is not None and isinstance(piece, other) else SLOTS[slot]


def abstract(protocol: type[Any]) -> tuple[str, ...]:
    """What a piece of a slot must bring itself, by name: methods, and facts that are declared without a value."""
    declared = (
        name for home in protocol.__mro__ for name in vars(home).get("__annotations__", ()) if not hasattr(home, name)
    )
    return tuple(sorted({*getattr(protocol, "__abstractmethods__", ()), *declared}))


DERIVED = {"cohort": "draw", "learn": "step", "by_number": "named"}  # hooks that a protocol makes of another one


def hooks(kind: type[Any]) -> dict[str, Any]:
    """What the protocols of a piece's class ask for, by name: as it is declared there, None for a fact without a value."""
    found: dict[str, Any] = {}
    for home in kind.__mro__:
        if getattr(home, "_is_protocol", False) and home.__module__ != "typing":
            declared = {**dict.fromkeys(vars(home).get("__annotations__", ())), **vars(home)}
            named = {name: one for name, one in declared.items() if name == "__call__" or not name.startswith("_")}
            found = {**named, **found}
    return found
