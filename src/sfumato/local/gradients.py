"""Ways to a gradient: plain, or the sharpness-aware one, which looks for flat minima."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from sfumato.errors import BadValue

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

    def __call__(self, compute: Callable[[], Gradients], weights: Gradients) -> Gradients:
        """The gradient at the perturbed weights; the weights are left as they were."""
        first = compute()
        with torch.no_grad():
            scales = [w.abs() for w in weights] if self.adaptive else [torch.ones(()) for _ in weights]
            steps = [g * s for g, s in zip(first, scales, strict=True)]
            norms = torch.stack([step.reshape(len(step), -1).square().sum(1) for step in steps]).sum(0).sqrt()
            factor = self.radius / (norms + 1e-12)
            before = [w.clone() for w in weights]
            for weight, step, scale in zip(weights, steps, scales, strict=True):
                weight.add_(step * scale * factor.reshape(-1, *[1] * (step.dim() - 1)))
        second = compute()
        with torch.no_grad():
            for weight, kept in zip(weights, before, strict=True):
                weight.copy_(kept)
        return second


@dataclass(frozen=True)
class NormPenalty:
    """Adds strength / 2 * max(0, ||w - start||^2 - norm^2) to the local loss: BLUR; with norm 0, the proximal term of FedProx.

    States nothing: a penalty is not a bound.
    """

    strength: float
    norm: float = 0.0

    def __post_init__(self) -> None:
        if not (self.strength >= 0.0 and self.norm >= 0.0):
            raise BadValue(f"{self}: strength and norm are not negative.")

    def add_to(self, gradients: Gradients, weights: Gradients, starts: Gradients) -> None:
        """Add the penalty's gradient in place, for the clients that are beyond the norm."""
        moved = [w - start for w, start in zip(weights, starts, strict=True)]
        squares = torch.stack([part.reshape(len(part), -1).square().sum(1) for part in moved]).sum(0)
        pull = torch.where(squares > self.norm**2, self.strength, 0.0)
        for gradient, part in zip(gradients, moved, strict=True):
            gradient.add_(part * pull.reshape(-1, *[1] * (part.dim() - 1)))
