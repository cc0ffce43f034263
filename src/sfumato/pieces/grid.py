"""Rows on a grid: whole numbers of one step, whose sums floating point does not change."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from sfumato.claim import Claim, text
from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.context import Context
from sfumato.pieces.protocol import ClientPiece
from sfumato.shapes import Rows

_MOST_BITS = 21  # a coordinate then has at most 22 bits, which float32 holds
_LARGEST_SUM = 2.0**52  # of steps: float64 holds every whole number up to twice that


@dataclass(frozen=True)
class Grid(ClientPiece):
    """Cut each coordinate off, toward zero, at a whole number of steps: the largest power of 2 up to the norm times 2^-`bits`.

    States: no norm grows when every coordinate moves toward zero, so every bound stays (rounding to the nearest would break
    it). Every coordinate is a whole number of steps that float32 holds, and so is every sum in float64, since all clients
    together stay below 2^52 steps. Each coordinate loses less than a step, so a row of d coordinates less than 2^-bits sqrt(d)
    of the norm.
    """

    bits: int = 20
    keeps_grid: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.bits, int) or not 1 <= self.bits <= _MOST_BITS:
            raise BadValue(f"Grid(bits={self.bits}): a whole number from 1 to {_MOST_BITS}, e.g. 20.")

    def step(self, claim: Claim) -> float:
        """The step, from the norm that bounds a row: a public number."""
        _, exponent = math.frexp(claim.l2)
        return math.ldexp(1.0, exponent - 1 - self.bits)

    def __call__(self, rows: Rows, context: Context) -> Rows:
        step = self.step(context.claim)
        return rows.div(step).trunc_().mul_(step)  # exact: the step is a power of 2

    def carry(self, claim: Claim) -> Claim:
        if math.isinf(claim.at_client(self).l2):
            raise UnsoundRound(
                f"{text(self)} comes before anything bounds a row: its step is a part of that bound.",
                "put Clip(norm) into the client slot, before the grid.",
            )
        step = self.step(claim)
        if claim.population * (claim.l2 / step) > _LARGEST_SUM:
            raise UnsoundRound(
                f"{text(self)}: the rows of {claim.population:,} clients may add up to more than 2^52 steps, which float64 does "
                "not add exactly.",
                "use a grid of fewer bits.",
            )
        return replace(claim, grid=step)
