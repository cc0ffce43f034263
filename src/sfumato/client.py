"""What a client does to its row before it leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sfumato.claim import Claim, text
from sfumato.context import Context
from sfumato.errors import BadValue, UnsoundRound
from sfumato.norms import norms_from_above
from sfumato.shapes import Rows

# Float32 products round by at most 2^-24 each, so a factor shrunk by 2^-20 keeps every float32 row within the norm.
_SHRINK = 1.0 + 2.0**-20
# Below this, a float32 factor has too few bits left: such rows are scaled in float64.
_SMALL_FACTOR = 2.0**-100


def clipped(rows: Rows, norm: float, out: Rows | None = None) -> Rows:
    """Each row scaled to at most this L2 norm; zero if it is not finite. A new tensor, or `out`."""
    norms = norms_from_above(rows)
    bounded = norms.isfinite()
    factor = torch.where(norms * _SHRINK > norm, norm / (norms * _SHRINK), torch.ones_like(norms))
    factor = torch.where(bounded, factor, torch.zeros_like(factor))
    if not bool(bounded.all()):
        rows = torch.where(bounded[:, None], rows, torch.zeros_like(rows))
    if bool((factor[bounded] < _SMALL_FACTOR).any()):
        return (rows.double() * factor[:, None]).to(rows.dtype)
    return torch.mul(rows, factor[:, None].to(rows.dtype), out=out)


@dataclass(frozen=True)
class Clip:
    """Scale each whole row down to L2 norm `norm`; a row with a NaN or an infinity becomes zero.

    States: every row has L2 norm at most `norm` (hence L1 norm at most sqrt(d) times it), whatever the data. Norms are
    taken in float64 and the factor is shrunk by 2^-20, so that the float32 rows do not exceed it.
    """

    norm: float

    def __post_init__(self) -> None:
        if not (self.norm >= 2.0**-60 and math.isfinite(self.norm)):
            raise BadValue(
                f"Clip(norm={self.norm}): the norm must be positive and finite. Use the largest update norm you want to "
                "keep, e.g. 1.0."
            )

    def __call__(self, rows: Rows, context: Context) -> Rows:
        """The rows, each within the ball."""
        return clipped(rows, self.norm, out=rows if context.spare else None)

    def carry(self, claim: Claim) -> Claim:
        """Every row is bounded from here on."""
        return claim.at_client(self).bounded(l2=self.norm)


@dataclass(frozen=True)
class WeightByExamples:
    """Multiply each row by min(n, cap) / cap, n being the client's number of records.

    States: the factor is at most 1, so no norm grows. Without a cap (a row times n) it has no bound, and is refused after a
    clip; before one it may do what it likes.
    """

    cap: int | None = None

    def __post_init__(self) -> None:
        if self.cap is not None and self.cap < 1:
            raise BadValue(f"WeightByExamples(cap={self.cap}): the cap is a number of records, at least 1.")

    def __call__(self, rows: Rows, context: Context) -> Rows:
        """The weighted rows."""
        assert context.sizes is not None, "a client piece gets the number of records of each row"
        sizes = context.sizes.to(rows)
        weights = sizes if self.cap is None else sizes.clamp(max=self.cap) / self.cap
        return rows * weights[:, None]

    def carry(self, claim: Claim) -> Claim:
        """No row grows."""
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
        return claim
