"""The low-order bits of floating point (Mironov 2012): they tell what naive noise was added to, and nothing of exact noise.

Noise near 0 has finer digits than a sum near 1: what was released from 0 may end in bits that nothing released from 1 can have.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato import AddNoise, Clip, DiscreteGaussian, Gaussian, Grid, RoundedGaussian
from sfumato.key import Key
from sfumato.pieces.context import Context
from sfumato.pieces.law import Laplace, Law
from sfumato.testing.piece import claim_for, context_for, layout_for

MANY = 40_000


def released(law: Law, value: float, exact: bool) -> np.ndarray:
    """Many releases of one number by the library's own pieces, as the server has them: in float64."""
    claim = Clip(1.0).carry(claim_for(MANY))
    row = torch.full((1, MANY), value, dtype=torch.float64)
    if exact:
        row, claim = Grid()(row, context_for(row, claim)), Grid().carry(claim)
    claim = replace(claim, l1=1.0, aggregated=True)
    context = Context(0, layout_for(MANY), claim, Key.from_seed(3).child("value", is_one=int(value == 1.0)))
    return np.asarray(AddNoise(law)(row[0], context).numpy())


def told(near: np.ndarray, far: np.ndarray) -> tuple[float, float]:
    """How often the releases of 0 and of 1 that lie in [1/4, 1/2) are no multiples of 2^-53: the attacker then says 0.

    fl(1 + noise) there is a difference of numbers of at least 1/2, and so a multiple of 2^-53; fl(0 + noise) has one bit more.
    """
    inside = [some[(some >= 0.25) & (some < 0.5)] * 2.0**53 for some in (near, far)]
    assert min(map(len, inside)) > 1000
    return tuple(float((some != np.round(some)).mean()) for some in inside)  # type: ignore[return-value]


@pytest.mark.parametrize("law", [Gaussian(1.0), Laplace(1.0)], ids=["gaussian", "laplace"])
def test_the_low_bits_of_naive_noise_tell_what_it_was_added_to(law: Law) -> None:
    of_zero, of_one = told(released(law, 0.0, exact=False), released(law, 1.0, exact=False))
    assert of_zero > 0.4 and of_one == 0.0  # whoever sees such a bit is certain: no epsilon holds


@pytest.mark.parametrize("law", [RoundedGaussian(1.0), DiscreteGaussian(1.0)], ids=["rounded", "discrete"])
def test_the_low_bits_of_exact_noise_tell_nothing(law: Law) -> None:
    """Every release is a whole number of the same steps, whatever it was released from; and the steps are equally likely odd."""
    near, far = (released(law, value, exact=True) * 2.0**20 for value in (0.0, 1.0))
    assert told(near * 2.0**-20, far * 2.0**-20) == (0.0, 0.0)
    for some in (near, far):
        assert (some == np.round(some)).all()
        odd = (some.astype(np.int64) & 1).mean()
        assert abs(odd - 0.5) < 5 * 0.5 / np.sqrt(MANY)


def test_exact_noise_off_its_grid_would_be_caught() -> None:
    """What the attack sees if rows are not cut off: the fraction of a step is the row's own."""
    rows = torch.full((MANY,), 1.0 / 3, dtype=torch.float64)
    claim = replace(Grid().carry(Clip(1.0).carry(claim_for(MANY))), aggregated=True)
    found = AddNoise(RoundedGaussian(1.0))(rows, Context(0, layout_for(MANY), claim, Key.from_seed(3)))
    steps = found.numpy() * 2.0**20
    assert (steps != np.round(steps)).all()
