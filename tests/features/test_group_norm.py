"""Groups of channels, each record's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from sfumato.errors import BadValue, DataError
from sfumato.features import GroupNorm, parse_features
from tests.features.law import law_of_single_records, pictures


@pytest.mark.parametrize("shape", [(6,), (6, 7), (6, 3, 5), (6, 2, 3, 2)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_it_is_the_usual_one(shape: tuple[int, ...], groups: int) -> None:
    x = pictures(40, *shape) * 3.0 - 1.0
    if groups < 6 or len(shape) > 1:
        assert torch.allclose(GroupNorm(groups)(x), F.group_norm(x, groups), atol=1e-5)
    law_of_single_records(GroupNorm(groups), x)


def test_an_even_group_is_zero_and_what_is_not_finite_counts_as_zero() -> None:
    x = torch.tensor([[2.0, 2.0, torch.nan, 1.0], [torch.inf, 1.0, 3.0, 3.0]])
    least, most = pytest.approx(-1.0, abs=1e-4), pytest.approx(1.0, abs=1e-4)
    assert GroupNorm(2)(x).tolist() == [[0.0, 0.0, least, most], [least, most, 0.0, 0.0]]


def test_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        DataError, match=r"243 channels .* 5 equal groups. Use group-norm:N, N one of 1, 3, 9, 27, 81, 243"
    ):
        parse_features("group-norm:5")(torch.zeros(2, 243, 8, 8))
    with pytest.raises(DataError, match="single numbers"):
        GroupNorm()(torch.zeros(3))
    with pytest.raises(BadValue, match="above 0"):
        GroupNorm(0)
