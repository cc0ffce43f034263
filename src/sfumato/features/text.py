"""Windows of text as vectors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sfumato.data.record_map import batched
from sfumato.errors import BadValue, DataError

_CODES = 128  # of characters; a column that no character has is never read


@batched
@dataclass(frozen=True)
class LastCharacters:
    """The last `count` characters of a window, each as a one among 128 zeros: what a linear model reads as weights of pairs.

    It counts nothing and learns nothing, so what a record becomes depends on that record alone.

    >>> LastCharacters(2)(torch.tensor([[5, 7, 9]])).nonzero()[:, 1]
    tensor([  7, 137])
    """

    count: int = 3

    def __call__(self, x: Tensor) -> Tensor:
        if x.is_floating_point() or x.ndim != 2:
            raise DataError(
                f"{self}: records of {x.dtype} and shape {tuple(x.shape[1:])} are no windows of characters."
            )
        if self.count > x.shape[1]:
            raise BadValue(f"{self}: windows have {x.shape[1]} characters. Use last-characters:{x.shape[1]} or fewer.")
        last = x[:, -self.count :].long()
        if len(last) and not 0 <= int(last.min()) <= int(last.max()) < _CODES:
            raise DataError(f"{self}: characters are numbers from 0 to {_CODES - 1}, and some here are not.")
        return F.one_hot(last, _CODES).flatten(1).to(torch.float32)
