"""The leading directions of public records: few numbers of a record that tell the most of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from sfumato.data.population import PublicData, Records, require_public
from sfumato.data.record_map import batched
from sfumato.digest import digest
from sfumato.errors import BadValue, DataError
from sfumato.features.pictures import tree_sum
from sfumato.features.threads import on_cpu, one_thread
from sfumato.key import Key

_MOST = 5000  # public records that a basis is learnt from
_MORE, _TURNS = 64, 4  # directions beyond the wanted ones, and turns, until those are found
_BITS = 26  # of the whole numbers that records and directions are brought to


@batched
@dataclass(frozen=True, eq=False)
class PublicPCA:
    """A record less the mean of public records, along their leading directions; each over (stddev_i / stddev_1) ^ whiten.

    The directions are the leading eigenvectors of the covariance of public records, which `learn` takes from PublicData only: a
    basis of clients' records would tell of them. With whiten 0 the coordinates keep their scale, with 1 all have the same.

    The map of a record is the same to the last bit whatever batch it is in (`along`). Numbers that are not finite count as 0.
    """

    public: str  # the name of the public records
    whiten: float
    shape: tuple[int, ...]  # of a record
    mean: Tensor = field(repr=False)  # [numbers]
    directions: Tensor = field(repr=False)  # [numbers, dimension], whole numbers: 2^26 times unit vectors
    scales: Tensor = field(repr=False)  # [dimension]: what coordinates are divided by

    @staticmethod
    def learn(public: object, dimension: int, whiten: float = 0.5) -> PublicPCA:
        """The basis of public records, of at most 5,000 that a public key draws; the same records give the same basis.

        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
        >>> PublicPCA.learn(PublicData("cross", Records(x, torch.zeros(4))), 2, whiten=0.0)(x)
        tensor([[ 0.,  1.],
                [ 0., -1.],
                [ 2.,  0.],
                [-2.,  0.]])
        """
        known = drawn(require_public(public, "PublicPCA"))
        check_whiten("pca", whiten)
        x = known.records.x.cpu()
        rows = finite(x)
        most = max(min(len(rows) - 1, rows.shape[1]), 0)
        if not 1 <= dimension <= most:
            raise BadValue(
                f"pca:{dimension}: {len(rows)} records of {known.name} with {rows.shape[1]} numbers each have at most {most} "
                f"directions. Use pca:{max(most, 1)} or fewer, or more public records."
            )
        with one_thread():
            mean, directions, stddevs = _leading(rows, dimension)
        if not stddevs[-1] > 1e-6 * stddevs[0]:
            enough = int((stddevs > 1e-6 * stddevs[0]).sum())
            raise BadValue(
                f"pca:{dimension}: the records of {known.name} vary in {enough} directions only. Use pca:{max(enough, 1)} "
                "or fewer."
            )
        scales = (stddevs / stddevs[0]) ** whiten
        return PublicPCA(known.name, whiten, tuple(x.shape[1:]), mean, whole_steps(directions), scales)

    @property
    def dimension(self) -> int:
        """How many numbers a record becomes."""
        return len(self.scales)

    @on_cpu
    def __call__(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.shape:
            raise DataError(
                f"pca:{self.dimension}: records of shape {tuple(x.shape[1:])}, and the basis is of {self.public}'s of shape "
                f"{self.shape}. Bring both to one shape, e.g. with resize:28 or grey before it."
            )
        return along(finite(x) - self.mean, self.directions, self.scales)

    def __repr__(self) -> str:
        return f"PublicPCA({self.public!r}, {self.dimension}, whiten={self.whiten:g})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicPCA) and digest(self) == digest(other)

    def __hash__(self) -> int:
        return hash(digest(self))


def drawn(public: PublicData) -> PublicData:
    """The public records that a basis is learnt from: all, or so many in an order of a public key, as files may be sorted."""
    if public.records.count <= _MOST:
        return public
    order = Key.from_seed(0).child("public-pca").permutations(1, public.records.count)[0]
    places = torch.from_numpy(np.sort(order[:_MOST]))
    return replace(public, records=Records(public.records.x[places], public.records.y[places]), pictures=None)


def check_whiten(word: str, whiten: float) -> None:
    """Refuse a power that is none."""
    if not 0.0 <= whiten <= 1.0:
        raise BadValue(f"{word}: whiten={whiten} must lie from 0 (keep the scales) to 1 (all the same). Use 0.5, say.")


def whole_steps(directions: Tensor) -> Tensor:
    """Unit vectors as whole numbers: 2^26 times as long."""
    return (directions * 2.0**_BITS).round()


def along(rows: Tensor, directions: Tensor, scales: Tensor) -> Tensor:
    """The coordinates of float64 rows along directions of whole numbers, over the scales; of each row by itself.

    A row's are the same to the last bit whatever batch it is in: the row, times a power of two that its own norm gives, and the
    directions are rounded to whole numbers w and b, of norms up to 2^26 and half a step for each number. By Cauchy and Schwarz
    the absolute products of a row and a direction add up to at most |w| |b| < 2^53, so that every product and every partial sum
    is a whole number that float64 has: exact in any order, by any kernel.
    """
    norm = tree_sum(rows * rows).sqrt().numpy()
    size = torch.from_numpy(np.ldexp(1.0, _BITS - np.frexp(norm)[1]))[:, None]  # a power of two: products are exact
    found = (rows * size).round() @ directions
    return (found / size * 2.0**-_BITS / scales).float()


def signed(vectors: Tensor) -> Tensor:
    """Each column with its largest number positive, so that its sign is no accident."""
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    return vectors * torch.where(largest < 0, -1.0, 1.0)


def finite(x: Tensor) -> Tensor:
    """Records as float64 rows, with 0 for what is not finite."""
    flat = x.flatten(1).float().double()
    return torch.where(flat.isfinite(), flat, 0.0)


def _leading(rows: Tensor, dimension: int) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of rows, their leading directions [numbers, dimension] and the standard deviations along them.

    By turns of multiplying random directions by the covariance and making them orthogonal, and the eigenvectors within what
    they span (Halko, Martinsson and Tropp 2011): those of the covariance where all directions fit in, and nearly so else.
    """
    mean = rows.mean(0)
    rows = rows - mean
    basis = Key.from_seed(0).child("public-pca").normal(rows.shape[1], min(dimension + _MORE, *rows.shape))
    for _ in range(_TURNS):
        basis = torch.linalg.qr(rows.T @ (rows @ basis)).Q
    inside = rows @ basis
    _, vectors = torch.linalg.eigh(inside.T @ inside)
    vectors = signed(basis @ vectors[:, -dimension:].flip(1))
    return mean, vectors, (rows @ vectors).square().mean(0).sqrt()
