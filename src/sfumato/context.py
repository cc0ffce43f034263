"""What a piece may look at besides its value: public facts, the claim that reached it, and its own keys."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from sfumato.claim import Claim
from sfumato.key import Key
from sfumato.update import Layout


@dataclass(frozen=True)
class Context:
    """The surroundings of one piece in one round.

    At the client, `sizes` holds each row's number of records and `keys` each row's own key. `key` is the piece's own key:
    at the client all clients share it (public randomness), at the server it is secret.
    """

    round: int
    layout: Layout
    claim: Claim
    key: Key
    sizes: torch.Tensor | None = None
    keys: tuple[Key, ...] = field(default=())
