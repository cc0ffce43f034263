"""Pictures of one data set in the shape of another's."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from sfumato.data.record_map import batched
from sfumato.errors import DataError
from sfumato.features.pictures import Box, Grey, Resize


@batched
@dataclass(frozen=True)
class Fit:
    """Pictures in `shape`: what lies inside their own known margin goes where the others have theirs.

    MNIST has a margin of 4 pixels round its digits and USPS has none: cropped before they are resized, its digits are as large as
    those. Each record is mapped alone, as in `pictures.py`.
    """

    shape: tuple[int, ...]
    margin: int = 0  # of the others
    own_margin: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) == self.shape and self.margin == self.own_margin:
            return x
        if len(self.shape) != 3 or x.ndim != 4:
            raise DataError(
                f"records of shape {tuple(x.shape[1:])} cannot be brought to {self.shape}, the shape of what is tested on: both "
                "must be pictures (channels, height, width). Give other --test-data, or another --public."
            )
        channels, height, width = self.shape
        x = Box(self.own_margin)(x)
        if channels == 1:
            x = Grey()(x)
        if x.shape[1] == 1 and channels > 1:
            x = x.expand(-1, channels, -1, -1)
        if x.shape[1] != channels:
            raise DataError(f"pictures of {x.shape[1]} channels cannot be brought to {channels}.")
        inner = Resize(height - 2 * self.margin, width - 2 * self.margin)(x)
        return F.pad(inner, (self.margin,) * 4) if self.margin else inner
