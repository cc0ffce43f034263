"""The norms of rows, never too small: what is clipped by it stays within the bound."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_RUN = 64
_LONG = 1024  # coordinates from which on it pays


def norms_from_above(rows: Tensor) -> Tensor:
    """The L2 norm of each row in float64: at most 2^-17 too large and never too small; NaN or infinite if the row is.

    Long float32 rows are summed in float32 by runs of 64, which lose at most 66 roundings, and the runs in float64: summing
    in float64 throughout takes three times as long. Where squares leave float32's range, it is done after all.

    >>> norms_from_above(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([5., 0.], dtype=torch.float64)
    """
    size = rows.shape[1]
    whole = size // _RUN * _RUN
    if whole < _LONG or rows.dtype != torch.float32 or not len(rows):
        return exact_norms(rows)
    runs = torch.linalg.vector_norm(rows[:, :whole].reshape(len(rows), -1, _RUN), dim=2)
    if whole < size:
        runs = torch.cat([runs, torch.linalg.vector_norm(rows[:, whole:], dim=1, keepdim=True)], dim=1)
    norms = exact_norms(runs)
    fits = (norms > 1e-10) & (norms < math.inf)
    norms = norms * (1.0 + 2.0**-17)
    if not fits.all():  # row by row: no row's norm may depend on another row
        norms[~fits] = exact_norms(rows[~fits])
    return norms


def exact_norms(rows: Tensor) -> Tensor:
    """The L2 norm of each row, summed in float64."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms


def l1_norms(rows: Tensor) -> Tensor:
    """The L1 norm of each row, summed in float64."""
    norms: Tensor = torch.linalg.vector_norm(rows, ord=1, dim=1, dtype=torch.float64)
    return norms
