"""Penalties that are added to the local loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sfumato.errors import BadValue
from sfumato.local.sharpness import Gradients


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
