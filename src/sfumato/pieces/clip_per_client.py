"""A norm of its own for some clients: under one noise for all, a smaller one hides its client better."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from sfumato.claim import Claim
from sfumato.errors import BadValue
from sfumato.pieces.clip import Clip
from sfumato.pieces.context import Context
from sfumato.pieces.own import by_number, clients_of, grouped
from sfumato.pieces.protocol import ClientPiece
from sfumato.shapes import Rows


@dataclass(frozen=True)
class ClipPerClient(ClientPiece):
    """Clip rows as `default` does, but for clients that have a clip of their own: ClipPerClient(Clip(1.0), {3: Clip(0.2)}).

    States: everybody's row is within the widest norm, of which the noise is a multiple, and a client's own row within its own
    norm. So noise of deviation nu hides client k as the Gaussian mechanism at nu over its own norm does, whatever the others'
    norms are: their rows are the same in both worlds. Where a client displaces another in a cohort of fixed size, its own
    norm and the widest add up. Who has which norm is public: it is written here, before data are seen.
    """

    default: Clip
    own: Any = ()  # a mapping from client to clip; kept as pairs of clients and clip

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", grouped(self.own, "ClipPerClient"))
        if not all(isinstance(clip, Clip) for clip in self._clips):
            raise BadValue(f"{self}: each is a Clip(norm), as the default is.")
        if len({clip.order for clip in self._clips}) > 1:
            raise BadValue(f"{self}: some norms are L1 and some L2. Give all clients the same order.")

    @property
    def _clips(self) -> tuple[Clip, ...]:
        return (self.default, *(clip for _, clip in self.own))

    @property
    def named(self) -> tuple[tuple[int, ...], ...]:
        return clients_of(self.own)

    @property
    def norm(self) -> float:
        """The widest."""
        return max(clip.norm for clip in self._clips)

    @cached_property
    def _own(self) -> dict[int, Clip]:
        return by_number(self.own)

    def of(self, client: int | None) -> Clip:
        """What clips one client's row."""
        return self.default if client is None else self._own.get(client, self.default)

    def __call__(self, rows: Rows, context: Context) -> Rows:
        if len(context.ids) != len(rows):
            raise BadValue("ClipPerClient: the engine does not say whose rows these are, so none has its own norm.")
        clips = [self.of(client) for client in context.ids]
        result = torch.empty_like(rows)
        for clip in dict.fromkeys(clips):
            places = [place for place, other in enumerate(clips) if other == clip]
            result[places] = clip(rows[places], replace(context, spare=False))
        return result

    def carry(self, claim: Claim) -> Claim:
        widest = max(self._clips, key=lambda clip: clip.norm).carry(claim)
        return widest.narrowed(self.of(claim.client).carry(claim).row)
