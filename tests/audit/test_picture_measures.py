"""Measures of pictures against slow twins."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from sfumato.audit.picture_measures import Pixels, flat, measured, paired, psnr, ssim
from sfumato.errors import BadValue
from sfumato.key import Key


def made_up(count: int, channels: int = 3, side: int = 14, seed: int = 0) -> torch.Tensor:
    uniform = torch.from_numpy(Key.from_seed(seed).uniform(count * channels * side * side))
    return uniform.reshape(count, channels, side, side)


def slow_ssim(first: torch.Tensor, second: torch.Tensor, window: int) -> float:
    """Window by window, pixel by pixel, as the paper has it."""
    middle = (window - 1) / 2
    weights = torch.tensor(
        [
            [2.718281828459045 ** (-((i - middle) ** 2 + (j - middle) ** 2) / (2 * 1.5**2)) for j in range(window)]
            for i in range(window)
        ],
        dtype=torch.float64,
    )
    weights = weights / weights.sum()
    found = []
    for a, b in zip(first, second, strict=True):
        for row in range(a.shape[0] - window + 1):
            for column in range(a.shape[1] - window + 1):
                one, other = (part[row : row + window, column : column + window] for part in (a, b))
                mean, its = (weights * one).sum(), (weights * other).sum()
                variance, others = (weights * (one - mean) ** 2).sum(), (weights * (other - its) ** 2).sum()
                together = (weights * (one - mean) * (other - its)).sum()
                above = (2 * mean * its + 0.01**2) * (2 * together + 0.03**2)
                found.append(above / ((mean**2 + its**2 + 0.01**2) * (variance + others + 0.03**2)))
    return float(torch.stack(found).mean())


@pytest.mark.parametrize(("channels", "side", "window"), [(3, 14, 11), (1, 8, 7), (1, 9, 9)])
def test_ssim_is_that_of_its_slow_twin(channels: int, side: int, window: int) -> None:
    first, second = made_up(2, channels, side), made_up(2, channels, side, seed=1)
    second = 0.5 * first + 0.5 * second
    found = ssim(first, second)
    for number in range(2):
        assert float(found[number]) == pytest.approx(slow_ssim(first[number], second[number], window), abs=1e-9)
    assert ssim(first, first).tolist() == pytest.approx([1.0, 1.0])
    assert bool((found < 0.95).all())


def test_psnr_and_errors_by_hand() -> None:
    truth = torch.zeros(2, 1, 2, 2)
    guess = torch.tensor([[[[0.1, -0.1], [0.1, 0.1]]], [[[1.0, 1.0], [1.0, 1.0]]]])
    assert psnr(guess, truth).tolist() == pytest.approx([20.0, 0.0], abs=1e-5)
    pixels = Pixels(torch.full((1, 1, 1), -1.0), torch.full((1, 1, 1), 3.0))
    found = measured(guess, truth, pixels)
    assert found["mse"] == pytest.approx((0.01 + 1.0) / 2) and found["mae"] == pytest.approx(0.55)
    assert found["psnr"] == pytest.approx((20.0 + 0.0) / 2 + 20 * 0.602059991, abs=1e-4)  # a range of 4: 12.04 dB more
    assert bool((pixels.unit(torch.tensor([[[-1.0, 3.0, 1.0, 9.0]]])) == torch.tensor([0.0, 1.0, 0.5, 1.0])).all())


def test_pairs_are_the_best_of_all_orders() -> None:
    truth, guesses = made_up(4, 1, 5), made_up(4, 1, 5, seed=7)
    best = min(float(((guesses[list(order)] - truth) ** 2).sum()) for order in permutations(range(4)))
    assert float(((paired(guesses, truth) - truth) ** 2).sum()) == pytest.approx(best)
    shuffled = truth[[2, 0, 3, 1]]
    assert torch.equal(paired(shuffled, truth), truth)


def test_no_constant_colour_is_closer_than_the_mean() -> None:
    truth = made_up(1)
    error = float(((flat(truth) - truth) ** 2).mean())
    for shift in (-0.05, 0.05):
        assert float(((flat(truth) + shift - truth) ** 2).mean()) > error


def test_what_is_no_picture_is_refused() -> None:
    with pytest.raises(BadValue, match="no pictures in grey or in colour"):
        Pixels.of(torch.zeros(5, 20))
