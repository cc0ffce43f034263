"""Bound a row: its whole L2 or L1 norm, a norm for each layer, or one that follows the updates, paid for as it goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from sfumato.claim import Claim
from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.context import Context
from sfumato.pieces.norms import exact_norms, l1_norms, norms_from_above
from sfumato.pieces.protocol import ClientPiece
from sfumato.shapes import Row, Rows

# Float32 products round by at most 2^-24 each, so a factor shrunk by 2^-20 keeps every float32 row within the norm.
_SHRINK = 1.0 + 2.0**-20


# Below this, a float32 factor has too few bits left: such rows are scaled in float64.
_SMALL_FACTOR = 2.0**-100


def clipped(rows: Rows, norm: float, out: Rows | None = None, order: int = 2) -> Rows:
    """Each row scaled to at most this norm; zero if it is not finite. A new tensor, or `out`."""
    norms = l1_norms(rows) if order == 1 else norms_from_above(rows)
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
    """Scale each whole row down to L2 norm `norm` (L1 with `order` 1); a row with a NaN or an infinity becomes zero.

    States: every row has L2 norm at most `norm` (hence L1 norm at most sqrt(d) times it), or L1 norm at most `norm` (hence
    L2 too), whatever the data. Norms are taken in float64 and the factor is shrunk by 2^-20, so that the float32 rows do not
    exceed it.
    """

    norm: float
    order: int = 2

    def __post_init__(self) -> None:
        if self.order not in (1, 2):
            raise BadValue(f"Clip(order={self.order}): 1 bounds the L1 norm, 2 the L2 norm. Use one of them.")
        if not (self.norm >= 2.0**-60 and math.isfinite(self.norm)):
            raise BadValue(
                f"Clip(norm={self.norm}): the norm must be positive and finite. Use the largest update norm you want to "
                "keep, e.g. 1.0."
            )

    def __call__(self, rows: Rows, context: Context) -> Rows:
        return clipped(rows, self.norm, rows if context.spare else None, self.order)

    def carry(self, claim: Claim) -> Claim:
        return claim.at_client(self).clipped(self.norm, self.order)


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
            raise BadValue(f"ClipPerLayer has {len(self.norms)} norms, the model {len(parts)} layers. Give one each.")
        return torch.cat([clipped(part, norm) for part, norm in zip(parts, self.norms, strict=True)], dim=1)

    def carry(self, claim: Claim) -> Claim:
        return claim.at_client(self).bounded(l2=math.sqrt(sum(norm**2 for norm in self.norms)))


@dataclass(frozen=True)
class AdaptiveClip(ClientPiece):
    """Clip to a norm that follows a quantile of the updates' norms (Andrew et al. 2021), with one noise for both.

    The row is divided by the current norm, clipped to 1, and carries one coordinate more: `bit_weight` times +1 if its norm
    was within the current one, -1 if not; 0 if the client's training failed. States: an L2 norm of at most
    sqrt(1 + bit_weight^2). The noise covers that coordinate
    too, so the next norm is a function of what is released. The server multiplies back by the norm that was used.
    """

    start_norm: float = 0.1
    quantile: float = 0.5
    rate: float = 0.2
    bit_weight: float = 0.1

    def __post_init__(self) -> None:
        Clip(self.start_norm)
        if not 0.0 < self.quantile < 1.0:
            raise BadValue(f"AdaptiveClip(quantile={self.quantile}): above 0 and below 1, e.g. 0.5 for the median.")
        if not (0.0 < self.rate < math.inf and 0.0 < self.bit_weight < math.inf):
            raise BadValue(f"{self}: rate and bit_weight are positive and finite.")

    def start(self) -> torch.Tensor:
        return torch.tensor(self.start_norm, dtype=torch.float64)

    def __call__(self, rows: Rows, context: Context) -> torch.Tensor:
        norm = self._norm(context)
        within = exact_norms(rows) <= norm
        bits = torch.where(within, self.bit_weight, -self.bit_weight).to(rows)
        if context.failed is not None:
            bits = torch.where(context.failed, 0.0, bits)
        return torch.cat([clipped(clipped(rows, norm) / norm, 1.0), bits[:, None]], dim=1)

    def undo(self, value: Row, context: Context) -> torch.Tensor:
        """The update in its own units again: with the norm that was used, not the next one."""
        return value[:-1] * self._norm(context)

    def follow(self, value: Row, context: Context) -> torch.Tensor:
        """The next norm: smaller if more than the quantile were within."""
        share = (float(value[-1]) / self.bit_weight + 1.0) / 2.0
        step = math.exp(-self.rate * (min(max(share, 0.0), 1.0) - self.quantile))
        return torch.tensor(min(max(self._norm(context) * step, 1e-6), 1e6), dtype=torch.float64)

    def _norm(self, context: Context) -> float:
        assert context.state is not None, "the norm is kept between rounds"
        return float(context.state)

    def carry(self, claim: Claim) -> Claim:
        if claim.at_client(self).paid:
            raise UnsoundRound(
                "AdaptiveClip comes after the noise, so its bit would leave without any.", "put it before the noise."
            )
        radius = math.sqrt(1.0 + self.bit_weight**2) * (1.0 + 1e-6)
        # The row is divided by the current norm, so no bound that it had before still holds.
        return replace(claim, dimension=claim.dimension + 1, l2=math.inf, l1=math.inf).bounded(l2=radius)
