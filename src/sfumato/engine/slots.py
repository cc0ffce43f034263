"""The two halves of a round around its sum: every piece gets the claim that reached it in the derivation, and its own key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from sfumato.data.population import PublicData
from sfumato.derive import UnitDerivation, pieces
from sfumato.key import Key
from sfumato.pieces.context import Context, Facts
from sfumato.round import Round
from sfumato.update import Layout

Kept = dict[str, torch.Tensor]  # what pieces keep between rounds, and the last release
_PREVIOUS = "previous"
_PART = 2**13  # coordinates of all messages that are added at once, so that their float64 copies stay in the cache


def _no_training(data: PublicData) -> torch.Tensor:
    raise NotImplementedError("this engine cannot train on public data")


@dataclass(frozen=True)
class Opening:
    """What is fixed for a whole round before any client is loaded; all of it is public but the key."""

    number: int
    key: Key
    kept: Kept = field(default_factory=dict)
    prepared: dict[int, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Slots:
    """A round that was derived, ready to be run by any engine."""

    round: Round
    proof: UnitDerivation
    layout: Layout

    def _of(self, wanted: str) -> list[tuple[int, Any]]:
        return [(place, piece) for place, (slot, piece) in enumerate(pieces(self.round)) if slot == wanted]

    def start(self) -> Kept:
        """What pieces keep before the first round."""
        return {f"piece.{place}": piece.start() for place, piece in self._of("client") if hasattr(piece, "start")}

    def width(self, opening: Opening) -> int:
        """The length of a message."""
        nobody = torch.zeros(0, self.layout.dimension)
        return int(self.messages(nobody, torch.zeros(0, dtype=torch.int64), (), opening).shape[1])

    def open(
        self,
        number: int,
        key: Key,
        kept: Kept | None = None,
        train: Callable[[PublicData], torch.Tensor] = _no_training,
    ) -> Opening:
        """Let the pieces prepare what all clients share."""
        kept = self.start() if kept is None else kept
        prepared = {}
        for place, piece in self._of("client"):
            if hasattr(piece, "prepare"):
                shared = key.child("prepared", round=number, place=place)
                prepared[place] = piece.prepare(Facts(self.layout, shared, kept.get(_PREVIOUS), train))
        return Opening(number, key, kept, prepared)

    def _context(self, place: int, opening: Opening, key: Key) -> Context:
        state = opening.kept.get(f"piece.{place}")
        claim = self.proof.before[place]
        return Context(opening.number, self.layout, claim, key, prepared=opening.prepared.get(place), state=state)

    def messages(self, rows: torch.Tensor, sizes: torch.Tensor, keys: Sequence[Key], opening: Opening) -> torch.Tensor:
        """What the clients send: the rows after the client slot, which may write over them. `keys` are the clients' own."""
        for nth, (place, piece) in enumerate(self._of("client")):
            shared = opening.key.child("shared", round=opening.number, nth=nth)
            own = tuple(key.child("piece", nth=nth) for key in keys)
            spare = nth == 0 and self.round.personal is None  # what training gave, and nobody keeps
            rows = piece(rows, replace(self._context(place, opening, shared), sizes=sizes, keys=own, spare=spare))
        return rows

    def weighted_sum(self, messages: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, float]:
        """The sum of the weighted messages, exact to float64 (one message is its own), and the sum of the weights."""
        weights = self.round.aggregate.weights(sizes)
        alike = bool((weights == 1).all())
        if alike and len(messages) == 1:
            return messages[0], 1.0
        total = torch.empty(messages.shape[1], dtype=torch.float64, device=messages.device)
        for sum_of, some in zip(torch.split(total, _PART), torch.split(messages, _PART, dim=1), strict=True):
            torch.sum(some.double() if alike else some.double() * weights[:, None], 0, out=sum_of)
        return total, float(weights.sum())

    def release(self, total: torch.Tensor, weight: float, opening: Opening) -> tuple[torch.Tensor, Kept]:
        """What the server makes of the sum, and what is kept for the next round.

        As soon as the value is paid for, what client pieces did to its shape and scale is undone, last piece first.
        """
        value = self.round.aggregate.finish(total.double(), weight)  # float64 until the noise is in it
        kept, undone = dict(opening.kept), False
        for nth, (place, piece) in enumerate(self._of("server")):
            if self.proof.before[place].paid and not undone:
                value, undone = self._undo(value, opening, kept), True
            own = opening.key.child("server", round=opening.number, nth=nth)
            value = piece(value, self._context(place, opening, own))
        if not undone:
            value = self._undo(value, opening, kept)
        value = value.float()
        if any(getattr(piece, "needs_previous", False) for _, piece in self._of("client")):
            kept[_PREVIOUS] = value
        return value, kept

    def _undo(self, value: torch.Tensor, opening: Opening, kept: Kept) -> torch.Tensor:
        for place, piece in reversed(self._of("client")):
            context = self._context(place, opening, opening.key)
            if hasattr(piece, "follow"):
                kept[f"piece.{place}"] = piece.follow(value, context)
            if hasattr(piece, "undo"):
                value = piece.undo(value, context)
        return value
