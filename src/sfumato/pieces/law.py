"""Noise laws: what is drawn, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sfumato.account.event import Event, GaussianEvent
from sfumato.claim import Claim
from sfumato.errors import BadValue
from sfumato.key import Key


@dataclass(frozen=True)
class Gaussian:
    """N(0, stddev^2) on every coordinate, with stddev = `noise_multiplier` times the norm that bounds a row.

    States: `GaussianEvent(stddev / L2 sensitivity)`. The Gaussian mechanism depends on the L2 distance of the two means
    only, whatever the dimension (Dong, Roth, Su 2022, Theorem 2.7).
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        if not (self.noise_multiplier > 0.0 and math.isfinite(self.noise_multiplier)):
            raise BadValue(
                f"Gaussian(noise_multiplier={self.noise_multiplier}): the noise multiplier is positive and finite, e.g. 1.0. "
                "For a run without noise use the recipe fedavg, the non-private baseline."
            )

    def stddev(self, claim: Claim) -> float:
        """The standard deviation on each coordinate."""
        return self.noise_multiplier * claim.l2

    def event(self, claim: Claim) -> Event:
        """What it costs, for the distance that one unit can move the value."""
        return GaussianEvent(self.stddev(claim) / claim.sensitivity(claim.l2))

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        """Float64 noise."""
        return key.normal(*shape, stddev=stddev)
