"""Noise that no single party knows: each client adds a share, and a secure sum shows the server nothing but the total."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from sfumato.account.event import GaussianEvent, Relation, Unit
from sfumato.claim import Claim, text
from sfumato.context import Context
from sfumato.errors import BadValue, UnsoundRound
from sfumato.noise import Gaussian
from sfumato.sample import Everyone, FixedSize
from sfumato.shapes import Rows


@dataclass(frozen=True)
class NoiseShare:
    """Each client adds Gaussian noise of its own, so that any `clients` honest ones together have the law's deviation.

    `clients` is the smallest cohort that may reply, minus those who are curious and would subtract their own share. States:
    nothing yet; the sum pays (PRIVACY R3), and only where the number of shares in it does not depend on the client that is
    to be hidden.
    """

    law: Gaussian
    clients: int

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise BadValue(f"NoiseShare(clients={self.clients}): at least one honest client must add its share.")

    def _deviation(self, claim: Claim) -> float:
        return self.law.stddev(claim) / math.sqrt(self.clients)

    def __call__(self, rows: Rows, context: Context) -> Rows:
        """The rows, each with its own share."""
        deviation = self._deviation(context.claim)
        shares = [self.law.sample((rows.shape[1],), deviation, key.child("share")) for key in context.keys]
        return (rows.double() + torch.cat([torch.empty(0), *shares]).reshape(rows.shape).to(rows.device)).to(rows.dtype)

    def carry(self, claim: Claim) -> Claim:
        """A share of the noise is in each message."""
        if claim.at_client(self).paid:
            raise UnsoundRound(f"{text(self)} comes after noise that is already paid for.", "use one of the two.")
        if math.isinf(claim.l2):
            raise UnsoundRound(
                f"{text(self)} comes before anything bounds a row, so no amount of noise hides a client.",
                "put Clip(norm) into the client slot, before the shares.",
            )
        if (
            claim.unit is Unit.CLIENT
            and claim.relation is Relation.ADD_REMOVE
            and not isinstance(claim.sampling, FixedSize)
        ):
            raise UnsoundRound(
                f"{text(self)}: under add/remove a client that is not there adds no share, so the noise in the sum changes with "
                "the very client that is to be hidden.",
                "use FixedSize(size), or relation='replace' with Everyone(), or AddNoise in the server slot.",
            )
        if not isinstance(claim.sampling, FixedSize | Everyone):
            raise UnsoundRound(
                f"{text(self)}: the size of a Poisson cohort varies, and with it the noise in the sum.",
                "use FixedSize(size) or Everyone(), where all reply, or AddNoise in the server slot.",
            )
        check_honest(self, self.clients, claim, 0)
        return self.unproven(claim)

    def unproven(self, claim: Claim) -> Claim:
        """How a round without a guarantee goes on: the share is drawn all the same."""
        return replace(
            claim,
            share=self._deviation(claim),
            share_count=self.clients,
            stddev=self.law.stddev(claim),
            noise_sensitivity=claim.sensitivity(claim.l2),
        )


@dataclass(frozen=True)
class SecureSum:
    """The server sees the sum of the messages and who sent them, and nothing else. Simulated here: the messages are in memory.

    States: with noise shares, the world pays the sampler's event at the noise of the sum, and so does the server, but as one
    who sees the cohort. `smallest` cohort that may reply: below the full one nothing is amplified. A cohort that falls short
    must be given up, and counts.
    """

    smallest: int = 0
    shows: ClassVar[str] = "the sum of the messages"

    def carry(self, claim: Claim) -> Claim:
        """The sum is paid for by the shares in it."""
        if claim.share is None:
            return claim
        assert claim.stddev is not None
        check_honest(self, claim.share_count, claim, self.smallest)
        full = isinstance(claim.sampling, Everyone) or self.smallest in (0, getattr(claim.sampling, "size", 0))
        return pay_by_shares(claim, seen=claim.stddev, full=full).assuming("the secure sum shows nothing but the total")


def check_honest(who: object, shares: int, claim: Claim, smallest: int) -> None:
    """Refuse noise that was divided among more clients than are sure to be honest and to reply."""
    size = claim.sampling.size if isinstance(claim.sampling, FixedSize) else claim.population
    curious = claim.sampling.curious if isinstance(claim.sampling, FixedSize) else 1
    if smallest > size:
        raise UnsoundRound(f"{text(who)}: the cohort has only {size} clients.", f"let smallest be at most {size}.")
    honest = (smallest or size) - curious
    if shares > honest:
        raise UnsoundRound(
            f"{text(who)}: the noise is divided into {shares} shares, but only {honest} honest clients are sure to add theirs, so "
            "the sum would carry less noise than is accounted.",
            f"use NoiseShare(law, clients={max(honest, 1)}).",
        )


def pay_by_shares(claim: Claim, seen: float, full: bool = True) -> Claim:
    """The world pays for the noise in the sum; the server, who sees the cohort, for the noise in what it has `seen`."""
    assert claim.sampling is not None
    assert claim.stddev is not None
    distance = claim.sensitivity(claim.l2)
    event = GaussianEvent(claim.stddev / distance)
    world = claim.sampling.amplified(event, claim) if full else claim.sampling.observed(event, claim)
    # Who took part is plain to the server, so add/remove is nothing that can be hidden from it.
    hidden = claim.unit is Unit.RECORD or claim.relation is not Relation.ADD_REMOVE
    server = claim.sampling.observed(GaussianEvent(seen / distance), claim) if hidden else None
    return replace(claim, world=world, server=server).assuming(
        "idealised real arithmetic",
        "enough honest clients add their share, and a cohort that falls short is given up",
        "the server samples honestly",
    )
