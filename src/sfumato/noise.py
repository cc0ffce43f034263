"""Noise laws, and the piece that adds them: the standard deviation that is drawn is the one that is accounted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from sfumato.account.event import Event, GaussianEvent, Relation, Unit
from sfumato.claim import Claim, text
from sfumato.context import Context
from sfumato.errors import BadValue, UnsoundRound
from sfumato.key import Key
from sfumato.shapes import Value


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


@dataclass(frozen=True)
class AddNoise:
    """Add noise to every coordinate: of the aggregate at the server, or of each message at the client.

    States, at the server: the world pays the sampler's amplified event; the server saw the rows before the noise, so
    nothing is proven against it. At the client: both views pay the unsampled event of one message whenever the client takes
    part (a mixture over participation), never the amplified one, and only where the client's presence is not itself hidden.
    """

    law: Gaussian

    def __call__(self, value: Value, context: Context) -> Value:
        """The noisy value, in the value's own type."""
        stddev = self.law.stddev(context.claim)
        if not math.isfinite(stddev):
            raise UnsoundRound(
                f"{text(self)}: nothing bounds a row, so the noise would be infinite.", "put a Clip before it."
            )
        noisy = value.double()
        if context.claim.aggregated:
            noisy = self.law.sample(tuple(value.shape), stddev, context.key).to(value.device).add_(noisy)
        else:
            own = [self.law.sample((value.shape[1],), stddev, key.child("message")) for key in context.keys]
            noisy = noisy + torch.cat([torch.empty(0), *own]).reshape(value.shape).to(value.device)
        return noisy.to(value.dtype)

    def carry(self, claim: Claim) -> Claim:
        """Pay the event."""
        if claim.paid and math.isfinite(claim.l2):
            return claim  # more noise is free, and a piece before this one has paid
        if claim.paid:
            raise UnsoundRound(
                f"{text(self)} is a multiple of the norm that bounds a row, and nothing bounds one, so it would be infinite.",
                "put Clip(norm) into the client slot, before the noise.",
            )
        if math.isinf(claim.l2):
            raise UnsoundRound(
                f"{text(self)} comes before anything bounds a row: one client can move the value without limit, so no amount of "
                "noise hides it.",
                "put Clip(norm) into the client slot, before the noise.",
            )
        event = self.law.event(claim)
        claim = replace(claim, stddev=self.law.stddev(claim), noise_sensitivity=claim.sensitivity(claim.l2))
        claim = claim.assuming("idealised real arithmetic")
        assert claim.sampling is not None
        if claim.aggregated:
            return replace(claim, world=claim.sampling.amplified(event, claim)).assuming("the server is trusted")
        if claim.unit is Unit.CLIENT and claim.relation is Relation.ADD_REMOVE:
            raise UnsoundRound(
                f"{text(self)} in the client slot hides what a message says, not that it was sent: under add/remove the "
                "number of messages, and with it the noise in their sum, tells whether the client is there.",
                "use relation='replace' or 'zero_out' in the sampler, or add the noise in the server slot.",
            )
        observed = claim.sampling.observed(event, claim)
        # The message is the row plus noise: no norm of it is bounded any more.
        return replace(claim, world=observed, server=observed, l2=math.inf, l1=math.inf).assuming(
            "the server samples honestly"
        )

    def unproven(self, claim: Claim) -> Claim:
        """How a round without a guarantee goes on: the noise is drawn all the same."""
        return replace(claim, stddev=self.law.stddev(claim))
