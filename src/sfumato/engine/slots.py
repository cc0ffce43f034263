"""The two halves of a round around its sum: every piece gets the claim that reached it in the derivation, and its own key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sfumato.context import Context
from sfumato.derive import UnitDerivation, pieces
from sfumato.key import Key
from sfumato.round import Round
from sfumato.update import Layout


@dataclass(frozen=True)
class Slots:
    """A round that was derived, ready to be run by any engine."""

    round: Round
    proof: UnitDerivation
    layout: Layout

    def messages(
        self, rows: torch.Tensor, sizes: torch.Tensor, keys: Sequence[Key], number: int, key: Key
    ) -> torch.Tensor:
        """What the clients send: the rows after the client slot. `key` is the round's, `keys` are the clients' own."""
        for place, (slot, piece) in enumerate(pieces(self.round)):
            if slot == "client":
                shared = key.child("shared", round=number, place=place)
                rows = piece(rows, Context(number, self.layout, self.proof.before[place], shared, sizes, tuple(keys)))
        return rows

    def weighted_sum(self, messages: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, float]:
        """The float64 sum of the weighted messages, and the sum of the weights: partial sums add."""
        weights = self.round.aggregate.weights(sizes)
        return (messages.double() * weights[:, None]).sum(0), float(weights.sum())

    def release(self, total: torch.Tensor, weight: float, number: int, key: Key) -> torch.Tensor:
        """What the server makes of the sum: the aggregate after the server slot."""
        value = self.round.aggregate.finish(total, weight).float()
        for place, (slot, piece) in enumerate(pieces(self.round)):
            if slot == "server":
                own = key.child("server", round=number, place=place)
                value = piece(value, Context(number, self.layout, self.proof.before[place], own))
        return value
