"""What a piece may look at besides its value: public facts, the claim that reached it, and its own keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from sfumato.claim import Claim
from sfumato.data.population import PublicData
from sfumato.key import Key
from sfumato.update import Layout


@dataclass(frozen=True)
class Context:
    """The surroundings of one piece in one round.

    At the client, `sizes` holds each row's number of records and `keys` each row's own key. `key` is the piece's own key:
    at the client all clients share it (public randomness), at the server it is secret. `prepared` is what the piece made of
    public facts before the round, `state` what it keeps between rounds. If the value is `spare`, nobody else needs it, and the
    piece may write over it.
    """

    round: int
    layout: Layout
    claim: Claim
    key: Key
    sizes: torch.Tensor | None = None
    keys: tuple[Key, ...] = field(default=())
    prepared: torch.Tensor | None = None
    state: torch.Tensor | None = None
    spare: bool = False


@dataclass(frozen=True)
class Facts:
    """What is public before a round begins: for pieces that prepare something all clients share.

    `previous` is the last released aggregate, None in the first round; `train` is local training on public data.
    """

    layout: Layout
    key: Key
    previous: torch.Tensor | None
    train: Callable[[PublicData], torch.Tensor]
