"""Rows become one: a sum, a sum over a public constant, or, where everything is paid, over a realised number."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from sfumato.account.event import Unit
from sfumato.claim import Claim
from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.context import Context
from sfumato.pieces.protocol import Aggregate, ServerPiece
from sfumato.shapes import Row


@dataclass(frozen=True)
class Mean(Aggregate):
    """The sum of the rows over a constant that is written down before any data is seen.

    States: one row's part shrinks by the constant. A realised count would itself depend on the client that is to be hidden.
    """

    over: float
    keeps_distances: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (self.over > 0.0 and math.isfinite(self.over)):
            raise BadValue(f"Mean(over={self.over}): divide by a positive constant, such as the expected cohort size.")

    def weights(self, sizes: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(sizes, dtype=torch.float64)

    def finish(self, total: Row, weight: float) -> Row:
        return total / self.over

    @property
    def divisor(self) -> float:
        return self.over

    def carry(self, claim: Claim) -> Claim:
        return replace(claim.scaled(1.0 / self.over), aggregated=True)


@dataclass(frozen=True)
class Sum(Aggregate):
    """The sum of the rows, to be divided once the noise is in it.

    States: one row's part is the row itself. Sums are made in float64, so whole numbers of a grid's steps stay such: any
    order and any number of threads give the same sum.
    """

    keeps_grid: ClassVar[bool] = True
    keeps_distances: ClassVar[bool] = True

    def weights(self, sizes: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(sizes, dtype=torch.float64)

    def finish(self, total: Row, weight: float) -> Row:
        return total

    def carry(self, claim: Claim) -> Claim:
        return replace(claim, aggregated=True)


@dataclass(frozen=True)
class Divide(ServerPiece):
    """Divide by a constant that is written down before any data is seen.

    States: one row's part shrinks by the constant. After the noise it is free.
    """

    over: float
    keeps_distances: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Mean(self.over)

    def __call__(self, value: Row, context: Context) -> Row:
        return value / self.over

    def carry(self, claim: Claim) -> Claim:
        return claim.at_server(self).scaled(1.0 / self.over)


@dataclass(frozen=True)
class RealisedMean(Aggregate):
    """The mean over those who really replied, `by` clients or by examples: plain FedAvg.

    States: nothing about clients, since both the count and the sum of the weights depend on who is there; it is free
    where every message was private before it left.
    """

    by: str = "clients"

    def __post_init__(self) -> None:
        if self.by not in ("clients", "examples"):
            raise BadValue(f"RealisedMean(by={self.by!r}): weigh by 'clients' or by 'examples'.")

    def weights(self, sizes: torch.Tensor) -> torch.Tensor:
        return sizes.double() if self.by == "examples" else torch.ones_like(sizes, dtype=torch.float64)

    def finish(self, total: Row, weight: float) -> Row:
        """The aggregate; nothing moves if nobody replied."""
        return total / weight if weight > 0 else torch.zeros_like(total)

    def carry(self, claim: Claim) -> Claim:
        told = claim.sizes_are_public and not claim.shuffled
        if self.by == "examples" and (claim.share is not None or (claim.paid and not told)):
            raise UnsoundRound(
                "RealisedMean(by='examples') weighs by numbers of records, which are "
                + (
                    "not passed on by the shuffler."
                    if claim.shuffled
                    else "private here, after the noise was sized without them."
                ),
                "use RealisedMean(by='clients'), or Mean(over=...).",
            )
        if not claim.paid:
            private = (
                "clients are to be hidden: that number is private, and the scale of the noise alone would reveal it."
            )
            unknown = (
                "how far one record moves the mean must be known before: that number shows only when the round is over."
            )
            raise UnsoundRound(
                "RealisedMean divides by the number of those who replied, while "
                + (private if claim.unit is Unit.CLIENT else unknown),
                "use Mean(over=...) with a constant written down beforehand, e.g. rate times the declared population.",
            )
        return self.unproven(claim)

    def unproven(self, claim: Claim) -> Claim:
        return replace(claim, aggregated=True)
