"""What a basis is learnt from: each client's matrix of second moments, as one row of known length."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from sfumato.account.event import Relation, Unit
from sfumato.claim import Claim, Reach
from sfumato.errors import BadValue
from sfumato.features.basis import finite
from sfumato.pieces.clip import clipped
from sfumato.pieces.protocol import LocalPiece

if TYPE_CHECKING:
    from sfumato.data.population import Records
    from sfumato.gradients import LossPerRecord
    from sfumato.local.task import Task
    from sfumato.update import Layout

_AT_ONCE = 4096  # records in work at once


@dataclass(frozen=True)
class SecondMoments(LocalPiece):
    """A client's row is the mean of x x^T over its records, each of which is first brought to norm 1 (or 0, if it is zero).

    `numbers` is how many a record has. The row is the upper triangle of the matrix, off-diagonal numbers times sqrt 2, so that
    its L2 norm is the matrix's Frobenius norm. With `records`, a declared number, it is the sum over that number, cut off at
    norm 1; a client without records sends zeros, and what is not finite counts as 0.

    States: the norm is at most 1, since x x^T has norm |x|^2 and a mean is no longer than the longest. Two rows are at most
    sqrt 2 apart: both matrices are positive semidefinite, so their inner product is not negative. One record moves a sum over
    `records` by 1/records where it comes or goes, and by sqrt 2/records where it is swapped, since
    |x x^T - y y^T|^2 = 2 - 2 (x . y)^2; the cut is a projection onto a ball, which brings nothing further apart. A mean it may
    move as far as any two rows are apart.
    """

    numbers: int
    records: int = 0
    relation: Relation = Relation.REPLACE
    one_by_one: ClassVar[bool] = True
    fresh_rows: ClassVar[bool] = True
    keeps_distances: ClassVar[bool] = True
    records_apart: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.numbers < 1:
            raise BadValue(f"{self}: a record has at least 1 number.")
        if self.records < 0 or (not self.records and self.relation is not Relation.REPLACE):
            raise BadValue(f"{self}: records are swapped in a mean; for add_remove, declare how many there are.")

    @property
    def length(self) -> int:
        """How many coordinates a row has."""
        return self.numbers * (self.numbers + 1) // 2

    def message_length(self, layout: Layout) -> int:
        return self.length

    def check(self, module: nn.Module, loss: LossPerRecord, example: Records) -> None:
        found = math.prod(example.x.shape[1:])
        if found != self.numbers or not example.x.is_floating_point():
            raise BadValue(
                f"{self}: records of {found} {str(example.x.dtype).removeprefix('torch.')} came. Declare their own number of "
                "floating-point numbers."
            )

    def trial(self) -> None:
        """Nothing: it runs once."""
        return

    def train(self, task: Task) -> Tensor:
        rows = [task.params.new_empty(0, self.length), *(self._row(records.x)[None] for records in task.clients)]
        return torch.cat(rows)

    def _row(self, x: Tensor) -> Tensor:
        total = torch.zeros(self.numbers, self.numbers, dtype=torch.float64, device=x.device)
        for some in torch.split(x.flatten(1), _AT_ONCE):
            units = _units(some)
            total += units.T @ units
        return clipped(packed(total / (self.records or max(len(x), 1)))[None].float(), 1.0)[0]

    def declared_records(self) -> int:
        return max(1, self.records)

    def carry(self, claim: Claim) -> Claim:
        if claim.unit is Unit.RECORD and not claim.relation_is_asked:
            claim = replace(claim, relation=self.relation)
        rows = replace(claim, dimension=self.length).bounded(l2=1.0)
        apart = Reach(math.sqrt(2.0), math.inf, self.length)
        if not self.records:
            return rows.closer(apart, apart)
        one = Reach(1.0, math.inf, self.length) if claim.relation is Relation.ADD_REMOVE else apart
        return rows.closer(apart, one.scaled(1.0 / self.records))


def _units(rows: Tensor) -> Tensor:
    """Each row in float64 and of norm 1, or zero; squares of what were float32 numbers have room in float64."""
    rows = finite(rows)
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / torch.where(norms > 0, norms, 1.0)


def packed(matrix: Tensor) -> Tensor:
    """The upper triangle of a symmetric matrix as a row of the same norm.

    >>> packed(torch.tensor([[3.0, 2.0], [2.0, 1.0]]))
    tensor([3.0000, 2.8284, 1.0000])
    """
    above, right = torch.triu_indices(len(matrix), len(matrix))
    return matrix[above, right] * torch.where(above == right, 1.0, math.sqrt(2.0)).to(matrix)


def unpacked(row: Tensor, numbers: int) -> Tensor:
    """The symmetric matrix of a row.

    >>> unpacked(torch.tensor([3.0, 2.8284, 1.0]), 2).round(decimals=3)
    tensor([[3., 2.],
            [2., 1.]])
    """
    above, right = torch.triu_indices(numbers, numbers)
    matrix = row.new_zeros(numbers, numbers)
    matrix[above, right] = row / torch.where(above == right, 1.0, math.sqrt(2.0)).to(row)
    return matrix.triu() + matrix.triu(1).T
