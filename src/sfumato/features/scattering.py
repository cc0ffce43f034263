"""The wavelet scattering of pictures: what two layers of fixed wavelets see of them, without any data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from sfumato.data.record_map import batched
from sfumato.errors import BadValue, DataError
from sfumato.features.pictures import require_pictures
from sfumato.features.threads import on_cpu, one_thread

_PI = 3.1415  # in the norm of a wavelet, as kymatio has it


@batched
@dataclass(frozen=True)
class Scattering:
    """Scattering of order 2 (Bruna and Mallat 2013): pictures [n, c, h, w] to [n, c * paths, h / 2^scales, w / 2^scales].

    A picture is filtered by Morlet wavelets of so many scales and directions, their absolute values once more by those of coarser
    scales, and everything is blurred and sub-sampled: 1 + 8*2 + 8*8 = 81 paths for 2 scales of 8 directions. The numbers are
    those of kymatio's `Scattering2D(J=scales, shape=(h, w), L=directions, max_order=2)`.

    Fourier transforms and matrix products round by shapes, by alignment and by the number of threads. So each record is mapped
    alone, copied to memory of its own, by one thread: all take the same way, and what one becomes depends on no other record.
    Numbers that are not finite count as 0.

    >>> Scattering()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 81, 7, 7])
    """

    scales: int = 2
    directions: int = 8

    def __post_init__(self) -> None:
        if min(self.scales, self.directions) < 1:
            raise BadValue(f"{self}: scales and directions are whole numbers above 0. Use scattering:2, say.")

    @on_cpu
    def __call__(self, x: Tensor) -> Tensor:
        height, width = require_pictures(x, self).shape[2:]
        if 2**self.scales > min(height, width):
            raise DataError(
                f"{self}: pictures of {height}x{width} pixels are smaller than {2**self.scales}x{2**self.scales}. "
                "Use fewer scales, or resize:28 before it, say."
            )
        x = torch.where(x.isfinite(), x, 0.0).float()
        with torch.no_grad(), one_thread():
            bank = _bank(self.scales, self.directions, height, width)
            return torch.stack([bank.scattered(record) for record in x])


@dataclass(frozen=True, eq=False)
class _Bank:
    """The filters for pictures of one size; `scattered` maps one picture."""

    rows: Tensor  # which pixel stands where in the picture with its mirrored margins
    columns: Tensor
    wavelets: dict[
        tuple[int, int], Tensor
    ]  # by scale and by how often the picture is halved: [directions, h, w], in Fourier
    blurs: tuple[tuple[Tensor, Tensor], ...]  # by how often it is halved: from the left and from the right

    def scattered(self, picture: Tensor) -> Tensor:
        """[c, h, w] to [c * paths, ...]; paths in kymatio's order."""
        scales = len(self.blurs)
        picture = picture[:, self.rows, self.columns]  # a copy, at the start of a block of memory as every other
        spectrum = torch.fft.fft2(picture)[:, None]
        zeroth, first, second = self.blurred(picture[:, None], 0), [], []
        for scale in range(scales):
            seen = _seen(spectrum * self.wavelets[scale, 0], scale)  # [c, directions, h, w]
            first.append(self.blurred(seen, scale))
            again = torch.fft.fft2(seen)[:, :, None] if scale + 1 < scales else seen
            deeper = [
                self.blurred(_seen(again * self.wavelets[coarser, scale], coarser - scale), coarser)
                for coarser in range(scale + 1, scales)
            ]
            second += [torch.cat(deeper, dim=2).flatten(1, 2)] if deeper else []
        return torch.cat([zeroth, *first, *second], dim=1).flatten(0, 1)

    def blurred(self, x: Tensor, halved: int) -> Tensor:
        """The low pass, sub-sampled and without margins: it is separable, so two small products do it."""
        left, right = self.blurs[halved]
        return left @ x @ right


def _seen(spectrum: Tensor, halvings: int) -> Tensor:
    """The absolute values of what has this spectrum, each side halved so often: in Fourier, halves fall on each other."""
    for _ in range(halvings):
        height, width = spectrum.shape[-2] // 2, spectrum.shape[-1] // 2
        spectrum = spectrum[..., :height, :] + spectrum[..., height:, :]
        spectrum = spectrum[..., :width] + spectrum[..., width:]
    found = torch.view_as_real(torch.fft.ifft2(spectrum, norm="forward"))  # the filters are over the number of pixels
    squares = found * found
    return (squares[..., 0] + squares[..., 1]).sqrt_()


@cache
def _bank(scales: int, directions: int, height: int, width: int) -> _Bank:
    """Filters of 2^scale pixels, as `kymatio.scattering2d.filter_bank` makes them, for mirrored margins that it adds."""
    step = 2**scales
    high, wide = ((size // step + 2) * step for size in (height, width))
    rows, columns = _mirrored(height, high), _mirrored(width, wide)
    wavelets, blurs = {}, []
    for scale in range(scales):
        angles = [
            (int(directions - directions / 2 - 1) - number) * math.pi / directions for number in range(directions)
        ]
        made = [
            _morlet(high, wide, 0.8 * 2**scale, angle, 0.75 * math.pi / 2**scale, 4 / directions) for angle in angles
        ]
        for halved in range(max(scale, 1)):
            part = np.stack(made)[:, _low(high, halved)][:, :, _low(wide, halved)]
            wavelets[scale, halved] = torch.from_numpy(part / part[0].size).to(torch.complex64)
        left, right = (_blur(size, scale, 0.8 * 2 ** (scales - 1), step) for size in (high, wide))
        blurs.append((left, right.T.contiguous()))
    return _Bank(rows[:, None], columns, wavelets, tuple(blurs))


def _mirrored(size: int, padded: int) -> Tensor:
    place = (torch.arange(padded) - (padded - size) // 2) % (2 * size - 2)
    return torch.minimum(place, 2 * size - 2 - place)


def _low(size: int, halved: int) -> np.ndarray:
    """The places of the low frequencies, which are left when a side is halved so often."""
    left = size // 2**halved
    return np.fft.fftfreq(left, 1 / left).astype(int) % size


def _gabor(high: int, wide: int, sigma: float, angle: float, frequency: float, slant: float) -> np.ndarray:
    """A wave in a Gaussian envelope, wrapped round the picture's sides."""
    row, column = np.mgrid[-2 * high : 3 * high, -2 * wide : 3 * wide]
    along, across = row * math.cos(angle) + column * math.sin(angle), column * math.cos(angle) - row * math.sin(angle)
    wave: np.ndarray = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2) + 1j * frequency * along)
    wave = wave.reshape(5, high, 5, wide).sum((0, 2))
    return wave / (2 * _PI * sigma**2 / slant)


def _morlet(high: int, wide: int, sigma: float, angle: float, frequency: float, slant: float) -> np.ndarray:
    """A wave less so much of its envelope that it has no mean; in Fourier, where it is real."""
    wave, envelope = (_gabor(high, wide, sigma, angle, one, slant) for one in (frequency, 0.0))
    found: np.ndarray = np.fft.fft2(wave - wave.sum() / envelope.sum() * envelope).real
    return found


def _blur(size: int, halved: int, sigma: float, step: int) -> Tensor:
    """[sub-sampled places, places]: a Gaussian about every place that is a multiple of `step`, but for the margins' own."""
    place = np.arange(-2 * size, 3 * size)
    gauss = np.exp(-(place**2) / (2 * sigma**2)).reshape(5, size).sum(0) / math.sqrt(2 * _PI * sigma**2)
    kernel = np.fft.ifft(np.fft.fft(gauss)[_low(size, halved)]).real
    centres = np.arange(1, size // step - 1) * (step // 2**halved)
    return torch.from_numpy(kernel[(centres[:, None] - np.arange(len(kernel))) % len(kernel)]).float()
