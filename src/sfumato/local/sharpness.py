"""The sharpness-aware gradient, which looks for flat minima."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sfumato.errors import BadValue
from sfumato.gradients import Product, written_out
from sfumato.pieces.norms import norms_from_above

Gradients = list[torch.Tensor]  # one per layer, [clients, *shape]


@dataclass(frozen=True)
class SharpnessAware:
    """The gradient at the worst point nearby: w + radius g / ||g||, each client's whole model at once (SAM, Foret et al. 2021).

    `adaptive` measures distance relative to the weights (ASAM, Kwon et al. 2021): w + radius w^2 g / ||w g||, as the released
    code of DP-FedSAM does. It composes with momentum, weight decay and penalties, which act on the gradient that comes out.
    """

    radius: float = 0.5
    adaptive: bool = False

    def __post_init__(self) -> None:
        if not self.radius >= 0.0:
            raise BadValue(f"SharpnessAware(radius={self.radius}): the radius is not negative, e.g. 0.5.")

    @torch.no_grad()
    def perturbed(self, gradients: Sequence[torch.Tensor | Product], weights: Gradients) -> Gradients:
        """The worst point nearby, as new tensors. The gradients are used up."""
        if self.adaptive:
            gradients = [gradient.mul_(w) for gradient, w in zip(written_out(gradients), weights, strict=True)]
        factor = self.radius / (torch.stack([_squares(part) for part in gradients]).sum(0).sqrt() + 1e-12)
        step = float(factor) if len(factor) == 1 else 1.0
        found = []
        for gradient, weight in zip(gradients, weights, strict=True):
            if isinstance(gradient, Product):
                found.append(gradient.added_to(weight, factor))
                continue
            if len(factor) > 1:
                gradient.mul_(factor.to(gradient).reshape(-1, *[1] * (gradient.dim() - 1)))
            if self.adaptive:
                torch.addcmul(weight, gradient, weight, value=step, out=gradient)
            else:
                torch.add(weight, gradient, alpha=step, out=gradient)
            found.append(gradient)
        return found


def _squares(gradient: torch.Tensor | Product) -> torch.Tensor:
    """The squared norm of each client's gradient, float64."""
    if isinstance(gradient, Product):
        return gradient.squares()
    return norms_from_above(gradient.reshape(len(gradient), -1)).square()
