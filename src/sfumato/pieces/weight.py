"""How much a row counts, by its number of records."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sfumato.claim import Claim, text
from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.context import Context
from sfumato.pieces.protocol import ClientPiece
from sfumato.shapes import Rows


@dataclass(frozen=True)
class WeightByExamples(ClientPiece):
    """Multiply each row by min(n, cap) / cap, n being the client's number of records.

    States: the factor is at most 1, so no norm grows. Without a cap (a row times n) it has no bound, and is refused after a
    clip; before one it may do what it likes. After the noise it scales that too, so messages no longer look alike.
    """

    cap: int | None = None

    def __post_init__(self) -> None:
        if self.cap is not None and self.cap < 1:
            raise BadValue(f"WeightByExamples(cap={self.cap}): the cap is a number of records, at least 1.")

    def __call__(self, rows: Rows, context: Context) -> Rows:
        assert context.sizes is not None, "a client piece gets the number of records of each row"
        sizes = context.sizes.to(rows)
        weights = sizes if self.cap is None else sizes.clamp(max=self.cap) / self.cap
        return rows * weights[:, None]

    def carry(self, claim: Claim) -> Claim:
        claim.at_client(self)
        if claim.paid and not claim.sizes_are_public:
            raise UnsoundRound(
                f"{text(self)} comes after the noise, and reads the number of records once more, which nothing pays for.",
                "put it before the noise, with a cap.",
            )
        if self.cap is None and not claim.paid and math.isfinite(claim.l2):
            raise UnsoundRound(
                "WeightByExamples() has no cap: a client with n records moves the sum n times as far, and n has no bound.",
                "give a public cap, e.g. WeightByExamples(cap=50): a row then counts min(n, cap) / cap.",
            )
        return replace(claim, alike=False) if claim.paid else claim
