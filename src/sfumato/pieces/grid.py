"""Rows on a grid: whole numbers of one step, whose sums floating point does not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.claim import Claim
from sfumato.errors import BadValue
from sfumato.pieces.context import Context
from sfumato.pieces.exact import BITS, on_grid
from sfumato.pieces.protocol import ClientPiece
from sfumato.shapes import Rows

_MOST_BITS = 21  # a coordinate then has at most 22 bits, which float32 holds


@dataclass(frozen=True)
class Grid(ClientPiece):
    """Cut each coordinate off, toward zero, at a whole number of steps: the largest power of 2 up to the norm times 2^-`bits`.

    States: no norm grows when every coordinate moves toward zero, so every bound stays (rounding to the nearest would break
    it). Every coordinate is a whole number of steps that float32 holds, and so is every sum in float64, since all clients
    together stay below 2^52 steps. Each coordinate loses less than a step, so a row of d coordinates less than 2^-bits sqrt(d)
    of the norm.
    """

    bits: int = BITS
    keeps_grid: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.bits, int) or not 1 <= self.bits <= _MOST_BITS:
            raise BadValue(f"Grid(bits={self.bits}): a whole number from 1 to {_MOST_BITS}, e.g. 20.")

    def __call__(self, rows: Rows, context: Context) -> Rows:
        return cut_off(rows, on_grid(context.claim, self.bits, self))

    def carry(self, claim: Claim) -> Claim:
        return on_grid(claim.at_client(self), self.bits, self)


def cut_off(rows: Rows, claim: Claim) -> Rows:
    """Each coordinate at a whole number of the claim's steps, toward zero. It is exact, as a step is a power of 2."""
    assert claim.grid is not None, "the claim knows its grid"
    return rows.div(claim.grid).trunc_().mul_(claim.grid)
