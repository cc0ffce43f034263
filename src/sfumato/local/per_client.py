"""Local training in which some clients have settings of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import nn

from sfumato.claim import Claim
from sfumato.data.population import Records
from sfumato.errors import BadValue, UnsoundRound
from sfumato.gradients import LossPerRecord
from sfumato.local.task import Task
from sfumato.pieces.context import Facts
from sfumato.pieces.own import by_number, clients_of, grouped
from sfumato.pieces.protocol import LocalPiece
from sfumato.shapes import Rows
from sfumato.update import Layout


@dataclass(frozen=True)
class PerClient(LocalPiece):
    """Every client trains by `default`, but for those that `own` names: PerClient(DpSgd(...), {3: DpSgd(...)}).

    States, for records: each client pays for its own steps, batches and noise, whatever the others do, because all that
    anybody sees of its records is computed from its own messages (post-processing); what holds for everyone is the largest.
    Who trains how is public: it is written here, before data are seen, and stays so in every round.
    """

    default: LocalPiece
    own: Any = ()  # a mapping from client to piece; kept as pairs of clients and piece
    fresh_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", grouped(self.own, "PerClient"))

    @property
    def named(self) -> tuple[tuple[int, ...], ...]:
        return clients_of(self.own)

    @property
    def by_number(self) -> bool:
        return bool(self.own) or any(piece.by_number for piece in self.pieces)

    @property
    def pieces(self) -> tuple[LocalPiece, ...]:
        """The default, then the others."""
        return (self.default, *(piece for _, piece in self.own))

    @cached_property
    def _own(self) -> dict[int, LocalPiece]:
        return by_number(self.own)

    def of(self, client: int | None) -> LocalPiece:
        """What one client trains by."""
        return self.default if client is None else self._own.get(client, self.default)

    def declared_records(self) -> int:
        """The fewest records that any client is declared to have."""
        return min(piece.declared_records() for piece in self.pieces)

    @property
    def one_by_one(self) -> bool:
        return all(piece.one_by_one for piece in self.pieces)

    @property
    def records_apart(self) -> bool:
        return any(piece.records_apart for piece in self.pieces)

    def carry(self, claim: Claim) -> Claim:
        """The client's own event; what else is stated must not depend on the client."""
        claims: list[Claim] = [piece.carry(claim) for piece in self.pieces]
        paid = [None not in (one.world, one.server, one.chooser) for one in claims]
        rest = {
            replace(one, world=None, server=None, chooser=None, stddev=None, noise_sensitivity=None) for one in claims
        }
        if len(rest) > 1 or len(set(paid)) > 1:
            raise UnsoundRound(
                "PerClient mixes pieces that state different things about the same value, such as other relations or bounds: "
                "what is said of one client would not hold for another.",
                "give all clients the same kind of local training, e.g. DpSgd with batches drawn in the same way.",
            )
        return claims[self.pieces.index(self.of(claim.client))]

    def noise_and_norm(self) -> tuple[float, float | None] | None:
        return self.default.noise_and_norm()

    def with_noise(self, noise_multiplier: float) -> PerClient:
        """The same with other noise for the default; the others keep their proportion to it."""
        usual, *others = (piece.noise_and_norm() for piece in self.pieces)
        assert usual is not None, "the default has noise to choose"
        factor = noise_multiplier / usual[0]
        own = tuple(
            (who, piece if noise is None else piece.with_noise(noise[0] * factor))
            for (who, piece), noise in zip(self.own, others, strict=True)
        )
        return PerClient(self.default.with_noise(noise_multiplier), own)

    def message_length(self, layout: Layout) -> int:
        """The same for every client: rows are added."""
        lengths = {piece.message_length(layout) for piece in self.pieces}
        if len(lengths) > 1:
            raise BadValue(f"PerClient: the clients' messages have lengths {sorted(lengths)}. Give all the same.")
        return lengths.pop()

    def prepare(self, facts: Facts) -> torch.Tensor | None:
        """What all clients share is one thing for all of them."""
        first, *others = (piece.prepare(facts) for piece in self.pieces)
        for other in others:
            if (first is None) != (other is None) or (
                first is not None and other is not None and not first.equal(other)
            ):
                raise BadValue(
                    "PerClient: the clients' pieces prepare different things, and a round shares one. Give all the same."
                )
        return first

    def check(self, module: nn.Module, loss: LossPerRecord, example: Records) -> None:
        for piece in self.pieces:
            piece.check(module, loss, example)

    def controlled(self, round: int) -> float | None:
        """The same for every client, or none: the server's variate is of all of them."""
        lengths = {piece.controlled(round) for piece in self.pieces}
        return lengths.pop() if len(lengths) == 1 else None

    def trial(self) -> tuple[LocalPiece, int] | None:
        return self.default.trial()

    def train(self, task: Task) -> Rows:
        if len(task.ids) != len(task.clients):
            raise BadValue("PerClient: the engine does not say which clients these are, so none has its own settings.")
        pieces = [self.of(client) for client in task.ids]
        rows = task.params.new_empty(len(task.clients), self.message_length(task.layout))
        for piece in dict.fromkeys(pieces):
            places = [place for place, other in enumerate(pieces) if other == piece]
            rows[places] = piece.train(task.some(places)).to(rows)
        return rows
