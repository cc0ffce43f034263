"""Local training in which some clients have settings of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from sfumato.account.event import ByClient, Event
from sfumato.claim import Claim
from sfumato.data.population import Records
from sfumato.errors import BadValue, UnsoundRound
from sfumato.gradients import LossPerRecord
from sfumato.local.task import Task
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
        given = self.own.items() if isinstance(self.own, Mapping) else self.own
        groups: dict[Any, list[int]] = {}
        for who, piece in given:
            groups.setdefault(piece, []).extend((who,) if isinstance(who, int) else who)
        object.__setattr__(self, "own", tuple((tuple(sorted(who)), piece) for piece, who in groups.items()))
        named = sorted(client for who, _ in self.own for client in who)
        if any(client < 0 for client in named) or len(set(named)) < len(named):
            raise BadValue(f"PerClient: {named} are the clients with their own settings. Name each once, by number.")

    @property
    def pieces(self) -> tuple[LocalPiece, ...]:
        """The default, then the others."""
        return (self.default, *(piece for _, piece in self.own))

    @property
    def one_by_one(self) -> bool:
        return all(piece.one_by_one for piece in self.pieces)

    def carry(self, claim: Claim) -> Claim:
        """Every client's own event; what else is stated must not depend on the client."""
        last = max((client for who, _ in self.own for client in who), default=0)
        if last >= claim.population:
            raise BadValue(f"PerClient names client {last}, but there are {claim.population}: numbers begin at 0.")
        claims = [replace(piece.carry(claim), alike=not self.own) for piece in self.pieces]
        first, *others = claims
        if all(other == first for other in others):
            return first
        worlds, servers, choosers = ([getattr(one, view) for one in claims] for view in ("world", "server", "chooser"))
        rest = {
            replace(one, world=None, server=None, chooser=None, stddev=None, noise_sensitivity=None) for one in claims
        }
        if None in (*worlds, *servers, *choosers) or len(rest) > 1:
            raise UnsoundRound(
                "PerClient mixes pieces that state different things about the same value, such as other relations or bounds: "
                "what is said of one client would not hold for another.",
                "give all clients the same kind of local training, e.g. DpSgd with batches drawn in the same way.",
            )
        world, server, chooser = map(self._event, (worlds, servers, choosers))
        return replace(first, world=world, server=server, chooser=chooser)

    def _event(self, events: list[Event]) -> Event:
        return ByClient(events[0], tuple((who, event) for (who, _), event in zip(self.own, events[1:], strict=True)))

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

    def check(self, module: nn.Module, loss: LossPerRecord, example: Records) -> None:
        for piece in self.pieces:
            piece.check(module, loss, example)

    def controlled(self, round: int) -> float | None:
        """The same for every client, or none: the server's variate is of all of them."""
        lengths = {piece.controlled(round) for piece in self.pieces}
        return lengths.pop() if len(lengths) == 1 else None

    def trial(self) -> tuple[LocalPiece, int]:
        return self.default.trial()

    def train(self, task: Task) -> Rows:
        chosen = {client: piece for who, piece in self.own for client in who}
        if len(task.ids) != len(task.clients):
            raise BadValue("PerClient: the engine does not say which clients these are, so none has its own settings.")
        pieces = [chosen.get(client, self.default) for client in task.ids]
        rows = torch.empty(len(task.clients), self.message_length(task.layout))
        for piece in dict.fromkeys(pieces):
            places = [place for place, other in enumerate(pieces) if other == piece]
            rows[places] = piece.train(task.some(places)).to(rows)
        return rows.to(task.params)
