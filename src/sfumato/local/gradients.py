"""Ways to a gradient: plain, or the sharpness-aware one, which looks for flat minima."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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

    @contextmanager
    def perturbed(self, gradients: Gradients, weights: Gradients) -> Iterator[None]:
        """Inside, the weights stand at the worst point; afterwards they are as they were. The gradients are used up."""
        with torch.no_grad():
            before = [weight.detach().clone() for weight in weights]
            if self.adaptive:
                for gradient, kept in zip(gradients, before, strict=True):
                    gradient.mul_(kept)
            norms = torch.stack([torch.linalg.vector_norm(g.reshape(len(g), -1), dim=1) for g in gradients]).norm(dim=0)
            factor = self.radius / (norms + 1e-12)
            for weight, gradient, kept in zip(weights, gradients, before, strict=True):
                own = factor.reshape(-1, *[1] * (gradient.dim() - 1))
                if self.adaptive:
                    weight.addcmul_(gradient.mul_(own), kept)
                else:
                    weight.addcmul_(gradient, own)
        yield
        with torch.no_grad():
            torch._foreach_copy_(weights, before)


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
