"""Channels of one record made comparable, by groups."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.data.record_map import batched
from sfumato.errors import BadValue, DataError
from sfumato.features.pictures import tree_sum

_LEAST = 1e-5  # of a variance, as in torch.nn.GroupNorm


@batched
@dataclass(frozen=True)
class GroupNorm:
    """Each record's channels in so many groups, each group less its mean and over its standard deviation (Wu and He 2018).

    Mean and deviation are the record's own, by sums as trees in float64, so no other record has a part in it. Numbers that are
    not finite count as 0. What Tramer and Boneh (2021) put behind the scattering of a grey picture: 81 channels in 27 groups.

    >>> GroupNorm(1)(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[-1.2247,  0.0000,  1.2247]])
    """

    groups: int = 27

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise BadValue(f"{self}: the number of groups is a whole number above 0. Use group-norm:27, say.")

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim < 2:
            raise DataError(f"{self}: records that are single numbers have no channels. Leave group-norm out.")
        channels = x.shape[1]
        if channels % self.groups:
            fit = ", ".join(str(number) for number in range(1, channels + 1) if channels % number == 0)
            raise DataError(
                f"{self}: {channels} channels cannot be parted into {self.groups} equal groups. Use group-norm:N, N one of {fit}."
            )
        grouped = x.double().reshape(len(x), self.groups, -1)
        grouped = torch.where(grouped.isfinite(), grouped, 0.0)
        count = grouped.shape[-1]
        centred = grouped - (tree_sum(grouped) / count)[..., None]
        variance = tree_sum(centred * centred) / count
        return (centred / (variance + _LEAST).sqrt()[..., None]).to(x.dtype).view_as(x)
