"""The gradient of a linear layer as the product that it is: a step adds it to the weight at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.pieces.norms import norms_from_above


@dataclass(frozen=True)
class Product:
    """The gradient of a linear layer's weight as its factors: g [clients, records, out] and x [clients, records, in].

    Written out it is as large as the weight, and a step reads it again; a large layer spends more time on that than on the
    product itself. `descend` does both at once.
    """

    g: Tensor
    x: Tensor

    def full(self) -> Tensor:
        """g^T x, [clients, out, in]."""
        return torch.bmm(self.g.transpose(1, 2), self.x)

    def squares(self) -> Tensor:
        """The squared norm for each client, float64: the sum over records i, j of (g_i . g_j)(x_i . x_j), if they are few."""
        (_, records, out), inside = self.g.shape, self.x.shape[2]
        if records * (inside + out) > inside * out:
            return norms_from_above(self.full().flatten(1)).square()
        g, x = self.g.double(), self.x.double()
        return (torch.bmm(g, g.transpose(1, 2)) * torch.bmm(x, x.transpose(1, 2))).sum((1, 2)).clamp(min=0.0)

    def added_to(self, weight: Tensor, factors: Tensor) -> Tensor:
        """weight + factor g^T x, one factor for each client, as a new tensor."""
        if len(weight) == 1:
            return torch.addmm(weight[0], self.g[0].T, self.x[0], alpha=float(factors))[None]
        return torch.baddbmm(weight, (self.g * factors.to(self.g)[:, None, None]).transpose(1, 2), self.x)

    def descend(self, weight: Tensor, lr: float, keep: float) -> None:
        """weight <- keep * weight - lr g^T x, in place."""
        if len(weight) == 1:
            weight[0].addmm_(self.g[0].T, self.x[0], beta=keep, alpha=-lr)
        else:
            weight.baddbmm_(self.g.transpose(1, 2), self.x, beta=keep, alpha=-lr)


def written_out(gradients: Sequence[Tensor | Product]) -> list[Tensor]:
    """The gradients as tensors, whatever they are."""
    return [gradient.full() if isinstance(gradient, Product) else gradient for gradient in gradients]
