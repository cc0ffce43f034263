"""The type checker of the tests itself."""

from __future__ import annotations

import pytest
from jaxtyping import TypeCheckError

from sfumato.claim import Reach


@pytest.mark.parametrize("again", [1, 2])
def test_every_test_checks_the_first_calls_and_leaves_the_others_alone(again: int) -> None:
    with pytest.raises(TypeCheckError):
        Reach(l2="far")  # type: ignore[arg-type]
    for _ in range(200):
        Reach(1.0)
    assert Reach(l2="far").l2 == "far"  # type: ignore[arg-type, comparison-overlap]
