"""What the server sees of the messages, and what that lets noise shares pay for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.claim import Claim, text
from sfumato.errors import UnsoundRound
from sfumato.pieces.payment import check_honest, pay_by_shares
from sfumato.pieces.protocol import Channel


@dataclass(frozen=True)
class Plain(Channel):
    """The server sees every message as it was sent. States: noise shares pay, for the server at the noise of one message."""

    shows: ClassVar[str] = "every message"
    keeps_grid: ClassVar[bool] = True

    def carry(self, claim: Claim) -> Claim:
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
    keeps_grid: ClassVar[bool] = True

    def carry(self, claim: Claim) -> Claim:
        if claim.share is None and self.smallest:
            raise UnsoundRound(
                f"{text(self)} gives small cohorts up, which tells of who was drawn, and no share of noise in the sum pays for it.",
                "leave smallest out, or add the noise as NoiseShare in the client slot.",
            )
        if claim.share is None:
            return claim
        size = check_honest(self, claim.share_count, claim, self.smallest)
        full = self.smallest in (0, size)
        return pay_by_shares(claim, seen=claim.stddev, full=full).assuming("the secure sum shows nothing but the total")
