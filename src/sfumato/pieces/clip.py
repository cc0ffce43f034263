"""Bound a row: its whole L2 norm, or a norm for each layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sfumato.claim import Claim
from sfumato.errors import BadValue
from sfumato.pieces.context import Context
from sfumato.pieces.norms import norms_from_above
from sfumato.pieces.protocol import ClientPiece
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
class Clip(ClientPiece):
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
        return clipped(rows, self.norm, out=rows if context.spare else None)

    def carry(self, claim: Claim) -> Claim:
        return claim.at_client(self).bounded(l2=self.norm)


@dataclass(frozen=True)
class ClipPerLayer(ClientPiece):
    """Clip each layer's part of the row to its own norm.

    States: the whole row's L2 norm is at most the root of the sum of the squares, with one standard deviation for all.
    """

    norms: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.norms:
            raise BadValue("ClipPerLayer(norms=()): give one norm for each layer.")
        for norm in self.norms:
            Clip(norm)

    def __call__(self, rows: Rows, context: Context) -> Rows:
        parts = context.layout.layers(rows, self)
        if len(parts) != len(self.norms):
            raise BadValue(
                f"ClipPerLayer has {len(self.norms)} norms, but the model has {len(parts)} layers. Give one each."
            )
        return torch.cat([clipped(part, norm) for part, norm in zip(parts, self.norms, strict=True)], dim=1)

    def carry(self, claim: Claim) -> Claim:
        return claim.at_client(self).bounded(l2=math.sqrt(sum(norm**2 for norm in self.norms)))
