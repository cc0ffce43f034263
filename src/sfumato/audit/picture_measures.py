"""How close pictures are to others: errors in the units of the records, and PSNR and SSIM of pixels from 0 to 1.

A reconstruction has no order, so pictures of a batch are paired as suits the attacker best before they are measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from sfumato.errors import BadValue

_WINDOW, _WIDTH = 11, 1.5  # pixels, and the standard deviation of the weights within
_FIRST, _SECOND = 0.01**2, 0.03**2  # what keeps the two quotients of SSIM finite, for pixels from 0 to 1


@dataclass(frozen=True)
class Pixels:
    """The public range of each channel in the units of the records: what black and white became when they were scaled."""

    low: Tensor
    high: Tensor

    @staticmethod
    def of(pictures: Tensor) -> Pixels:
        """The range of these pictures, which are public ones [n, channels, height, width]."""
        if pictures.ndim != 4 or pictures.shape[1] not in (1, 3) or not len(pictures):
            raise BadValue(
                f"records of the shape {tuple(pictures.shape[1:])} are no pictures in grey or in colour. Attack a run whose "
                "records are pictures [channels, height, width], without --features."
            )
        low, high = pictures.amin((0, 2, 3)), pictures.amax((0, 2, 3))
        return Pixels(low.reshape(-1, 1, 1), torch.maximum(high, low + 1e-6).reshape(-1, 1, 1))

    def unit(self, pictures: Tensor) -> Tensor:
        """Pixels from 0 to 1."""
        return ((pictures - self.low) / (self.high - self.low)).clamp(0.0, 1.0)

    def within(self, pictures: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(pictures, self.low), self.high)


def measured(guesses: Tensor, truth: Tensor, pixels: Pixels) -> dict[str, float]:
    """The means over the pictures of each measure, first guess for first truth."""
    return {word: float(values.mean()) for word, values in each(guesses, truth, pixels).items()}


def each(guesses: Tensor, truth: Tensor, pixels: Pixels) -> dict[str, Tensor]:
    """MSE and MAE in the units of the records, PSNR in decibel and SSIM of each picture."""
    off, unit = (guesses - truth).flatten(1), (pixels.unit(guesses), pixels.unit(truth))
    return {"mse": (off**2).mean(1), "mae": off.abs().mean(1), "psnr": psnr(*unit), "ssim": ssim(*unit)}


def psnr(first: Tensor, second: Tensor) -> Tensor:
    """The peak signal to noise ratio of each pair, -10 log10(MSE) for pixels from 0 to 1; equal pictures have infinity.

    >>> psnr(torch.zeros(1, 1, 4, 4), torch.full((1, 1, 4, 4), 0.1))
    tensor([20.])
    """
    return -10.0 * torch.log10(((first - second) ** 2).flatten(1).mean(1))


def ssim(first: Tensor, second: Tensor) -> Tensor:
    """The structural similarity of each pair (Wang et al. 2004): means, variances and covariance in windows of 11x11 pixels with
    Gaussian weights, averaged over all windows that lie inside and over channels. Smaller pictures have smaller windows.

    >>> ssim(torch.ones(1, 1, 12, 12), torch.ones(1, 1, 12, 12))
    tensor([1.])
    """
    channels, side = first.shape[1], min(first.shape[-2:])
    weights = _weights(min(_WINDOW, side - 1 + side % 2)).to(first.dtype).expand(channels, 1, -1, -1)

    def blurred(pictures: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(pictures, weights, groups=channels)

    mean, other = blurred(first), blurred(second)
    variance, others = blurred(first * first) - mean**2, blurred(second * second) - other**2
    together = blurred(first * second) - mean * other
    quotient = (2 * mean * other + _FIRST) * (2 * together + _SECOND)
    return (quotient / ((mean**2 + other**2 + _FIRST) * (variance + others + _SECOND))).flatten(1).mean(1)


def _weights(window: int) -> Tensor:
    off = torch.arange(window, dtype=torch.float64) - (window - 1) / 2
    line = torch.exp(-(off**2) / (2 * _WIDTH**2))
    return torch.outer(line, line) / line.sum() ** 2


def paired(guesses: Tensor, truth: Tensor) -> Tensor:
    """The guesses in the order of the true pictures that makes the squared error smallest: what an attacker's friend would say."""
    costs = torch.cdist(truth.flatten(1).double(), guesses.flatten(1).double()) ** 2
    _, columns = linear_sum_assignment(costs.numpy())
    return guesses[torch.from_numpy(columns)]


def flat(pictures: Tensor) -> Tensor:
    """Each picture's own mean colour: a guess that shows nothing, though nobody told the attacker that colour."""
    return pictures.mean((2, 3), keepdim=True).expand_as(pictures)


def total_variation(pictures: Tensor) -> Tensor:
    """How much neighbouring pixels differ, on average, down and across."""
    across = (pictures[..., 1:] - pictures[..., :-1]).abs().mean()
    return across + (pictures[..., 1:, :] - pictures[..., :-1, :]).abs().mean()
