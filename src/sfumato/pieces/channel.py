"""What the server sees of the messages, and what that lets noise shares pay for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sfumato.account.event import GaussianEvent, Relation, Unit
from sfumato.claim import Claim, text
from sfumato.errors import UnsoundRound
from sfumato.pieces.protocol import Channel
from sfumato.pieces.sampler import Everyone, FixedSize


@dataclass(frozen=True)
class Plain(Channel):
    """The server sees every message as it was sent. States: noise shares pay, for the server at the noise of one message."""

    shows: ClassVar[str] = "every message"

    def carry(self, claim: Claim) -> Claim:
        """As it was, but for noise shares."""
        return claim if claim.share is None else pay_by_shares(claim, seen=claim.share)


@dataclass(frozen=True)
class SecureSum(Channel):
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
