"""Scattering is what kymatio gives, and of one record at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sfumato.errors import BadValue, DataError
from sfumato.features import Scattering, parse_features
from sfumato.features.scattering import _gabor
from tests.features.law import law_of_single_records, pictures

# From kymatio 0.3.0, in float64: Scattering2D(J=scales, shape=(h, w), L=directions, max_order=2) of `drawn(c, h, w)`.
GOLDEN = {
    (2, 8, 1, 28, 28): {(0, 0, 0): 0.47500872, (3, 1, 2): 0.05691363, (40, 6, 0): 0.00231731, (80, 0, 6): 0.01489627},
    (2, 8, 3, 32, 32): {(0, 0, 0): 0.47452174, (3, 1, 2): 0.05691356, (121, 7, 0): 0.00296173, (242, 0, 7): 0.00441974},
    (3, 8, 1, 24, 30): {(0, 0, 0): 0.55182539, (3, 1, 2): 0.05190927, (108, 2, 0): 0.00329559, (216, 0, 2): 0.00524734},
    (1, 4, 2, 9, 14): {(0, 0, 0): 0.42495377, (3, 1, 2): 0.09461923, (5, 3, 0): 0.50987832, (9, 0, 6): 0.06862817},
}
SUMS = {
    (2, 8, 1, 28, 28): 80.771212,
    (2, 8, 3, 32, 32): 319.420762,
    (3, 8, 1, 24, 30): 19.425893,
    (1, 4, 2, 9, 14): 51.206858,
}


def drawn(channels: int, height: int, width: int) -> Tensor:
    """A picture that anybody can write down: (7 i^2 + 3 i j + 11 j + 5 k) mod 17, over 16."""
    k, i, j = (torch.arange(size) for size in (channels, height, width))
    return ((7 * i * i)[:, None] + 3 * i[:, None] * j + 11 * j + 5 * k[:, None, None]) % 17 / 16


@pytest.mark.parametrize("case", GOLDEN)
def test_it_gives_the_numbers_of_kymatio(case: tuple[int, int, int, int, int]) -> None:
    scales, directions, *shape = case
    found = Scattering(scales, directions)(drawn(*shape)[None])[0]
    for place, value in GOLDEN[case].items():
        assert float(found[place]) == pytest.approx(value, abs=1e-6)
    assert float(found.double().sum()) == pytest.approx(SUMS[case], rel=1e-6)


def test_the_finest_wavelet_sees_what_a_sum_over_the_picture_gives() -> None:
    """The slow twin: the first path of order 1, by adding up pixels in place of a Fourier transform."""
    x = drawn(1, 9, 14)[0].double()
    rows = [abs((i - 1) if i <= 9 else 17 - i) for i in range(12)]  # 12x18 with mirrored margins
    columns = [abs((j - 2) if j <= 15 else 28 - j) for j in range(18)]
    x = x[rows][:, columns]
    angle = torch.pi / 4
    wave, envelope = (torch.from_numpy(_gabor(12, 18, 0.8, angle, one, 1.0)) for one in (0.75 * torch.pi, 0.0))
    blur = torch.from_numpy(_gabor(12, 18, 0.8, 0.0, 0.0, 1.0)).real

    def around(a: Tensor, b: Tensor) -> Tensor:
        pairs = [(i, j) for i in range(12) for j in range(18)]
        return sum((a[i, j] * torch.roll(b, (i, j), (0, 1)) for i, j in pairs), torch.zeros_like(b))

    seen = around(x + 0j, wave - wave.sum() / envelope.sum() * envelope).abs()
    assert torch.allclose(
        Scattering(1, 4)(drawn(1, 9, 14)[None])[0, 1].double(), around(seen, blur)[2:10:2, 2:16:2], atol=1e-6
    )


def test_an_even_picture_has_no_waves() -> None:
    found = Scattering()(torch.full((1, 1, 12, 16), 0.5))
    assert found.shape == (1, 81, 3, 4)
    assert torch.allclose(found[:, 0], torch.tensor(0.5), atol=1e-4) and float(found[:, 1:].abs().max()) < 1e-6


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 16, 13)])
def test_a_picture_is_scattered_as_if_it_were_alone(shape: tuple[int, int, int]) -> None:
    law_of_single_records(Scattering(), pictures(45, *shape))


def test_threads_change_no_bit() -> None:
    before, x = torch.get_num_threads(), pictures(3, 3, 32, 32)
    try:
        torch.set_num_threads(1)
        alone = Scattering()(x)
        torch.set_num_threads(4)
        assert torch.equal(Scattering()(x), alone) and torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_what_is_not_finite_counts_as_nothing() -> None:
    x = pictures(2, 1, 8, 8)
    zeros, wrong = x.clone(), x.clone()
    zeros[0, 0, 2, 3:5], wrong[0, 0, 2, 3], wrong[0, 0, 2, 4] = 0.0, torch.nan, -torch.inf
    assert torch.equal(Scattering()(wrong), Scattering()(zeros))


def test_what_cannot_be_scattered_is_refused() -> None:
    with pytest.raises(DataError, match=r"3x9 pixels are smaller than 4x4. Use fewer scales, or resize:28"):
        Scattering()(torch.zeros(1, 1, 3, 9))
    with pytest.raises(DataError, match="no pictures"):
        Scattering()(torch.zeros(2, 81))
    with pytest.raises(BadValue, match="above 0"):
        Scattering(0)
    with pytest.raises(BadValue, match="no whole number above 0. Write scattering:16"):
        parse_features("scattering:two")
