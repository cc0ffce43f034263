from __future__ import annotations

import pytest
import torch

from sfumato import Key
from sfumato.pieces.norms import norms_from_above


@pytest.mark.parametrize("size", [1, 64, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-19, 1e-9, 1.0, 1e9, 1e18, 1e30])
def test_norms_are_never_too_small(size: int, scale: float) -> None:
    rows = torch.rand(3, size, generator=Key.from_seed(size).generator()) * scale
    rows[1, : size // 2] *= 1e-6
    exact = rows.double().norm(dim=1)
    found = norms_from_above(rows)
    assert (found >= exact * (1 - 1e-12)).all() and (found <= exact * (1 + 2.0**-16)).all()


@pytest.mark.parametrize("size", [5, 2000])
def test_a_row_that_is_not_finite_has_no_finite_norm(size: int) -> None:
    rows = torch.ones(4, size)
    rows[1, 0], rows[2, -1] = torch.nan, torch.inf
    found = norms_from_above(rows)
    assert found.isfinite().tolist() == [True, False, False, True] and len(norms_from_above(rows[:0])) == 0
    assert found[0] == pytest.approx(size**0.5, rel=2e-5)


def test_a_norm_does_not_depend_on_the_rows_beside_it() -> None:
    row = Key.from_seed(1).normal(1, 2000).float()
    for other in (0.0, 1e-20, 1.0, 1e30, torch.nan, torch.inf):
        assert norms_from_above(torch.cat([row, row * other]))[0] == norms_from_above(row)[0]
