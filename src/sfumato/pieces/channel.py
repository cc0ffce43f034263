"""What the server sees of the messages, and what that lets noise shares pay for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from sfumato.account.event import Unit
from sfumato.claim import Claim, text
from sfumato.errors import BadValue, UnsoundRound
from sfumato.guarantee import secrets
from sfumato.pieces.payment import check_honest, pay_by_shares, pay_shuffled
from sfumato.pieces.protocol import Channel

if TYPE_CHECKING:
    import numpy as np

    from sfumato.key import Key


_MEMBERS = "clients of a secure sum, who are told who is in it, are not the observer"


@dataclass(frozen=True)
class Plain(Channel):
    """The server sees every message as it was sent. States: noise shares pay, for the server at the noise of one message."""

    shows: ClassVar[str] = "every message"
    keeps_grid: ClassVar[bool] = True
    keeps_distances: ClassVar[bool] = True

    def carry(self, claim: Claim) -> Claim:
        return claim if claim.share is None else pay_by_shares(claim, seen=claim.share)


@dataclass(frozen=True)
class OneHolder(Channel):
    """Nothing is sent: who trains holds all the records, is trusted with them, and there is no server besides.

    States: what holds against anyone who sees the released models, and nothing against the holder, also where a message that
    was sent would have been private. Records are what can be hidden: to hide the one client would be to hide them all.
    """

    shows: ClassVar[str] = "all records"
    receiver: ClassVar[str] = "the holder of the records"
    sees_before_noise: ClassVar[str] = "it has them all, and is trusted"
    keeps_grid: ClassVar[bool] = True
    keeps_distances: ClassVar[bool] = True

    def carry(self, claim: Claim) -> Claim:
        if claim.unit is Unit.CLIENT:
            raise UnsoundRound(
                "one holder has all the records, so to hide it as a client would be to hide them all.",
                "hide single records (unit=Unit.RECORD), or let clients send messages (Plain()).",
            )
        claim = replace(Plain().carry(claim), server=None, chooser=None)
        return claim.assuming("the holder of the records is trusted")


@dataclass(frozen=True)
class SecureSum(Channel):
    """The server sees the sum of the messages and who sent them, and nothing else. In `simulate` one process sees the messages;
    between machines nobody does (`secure_sum`).

    States: with noise shares, the world pays the sampler's event at the noise of the sum, and so does the server, but as one
    who sees the cohort. `smallest` cohort that may reply: below the full one nothing is amplified. A cohort that falls short
    must be given up, and counts.
    """

    smallest: int = 0
    shows: ClassVar[str] = "the sum of the messages"
    simulated: ClassVar[str] = "the secure sum is simulated: this process holds every message"
    keeps_grid: ClassVar[bool] = True
    keeps_distances: ClassVar[bool] = True

    def carry(self, claim: Claim) -> Claim:
        if claim.share is None and self.smallest:
            raise UnsoundRound(
                f"{text(self)} gives small cohorts up, which tells of who was drawn, and no share of noise in the sum pays for it.",
                "leave smallest out, or add the noise as NoiseShare in the client slot.",
            )
        claim = replace(claim, only_sum=True)
        if claim.share is None:
            return claim
        size = check_honest(self, claim.share_count, claim, self.smallest)
        full = self.smallest in (0, size)
        paid = pay_by_shares(claim, seen=claim.stddev, full=full).assuming("the secure sum shows nothing but the total")
        hidden = paid.world is not None and secrets(paid.world)
        return paid.assuming(_MEMBERS) if hidden else paid


@dataclass(frozen=True)
class Shuffler(Channel):
    """Somebody between clients and server permutes whole messages; the server does not see who sent which. Simulated here.

    States: where every message is pure-epsilon private as a whole under replace (Laplace noise under an L1 clip, added at the
    client), one among as many as are sure to arrive, less the curious, costs what `ShuffledEvent` says, in both views. Elsewhere
    nothing is gained, and the guarantee says why: Gaussian messages and private local steps never qualify. `smallest` is the
    number of messages sure to arrive (0: the whole cohort); a cohort that falls short must be given up, and counts.
    """

    smallest: int = 0
    shows: ClassVar[str] = "every message, in an order drawn at random, without its sender"
    simulated: ClassVar[str] = "the shuffler is simulated: this process knows who sent which message"

    def __post_init__(self) -> None:
        if isinstance(self.smallest, bool) or not isinstance(self.smallest, int) or self.smallest < 0:
            raise BadValue(
                f"Shuffler(smallest={self.smallest}): a whole number of messages, or 0 for the whole cohort."
            )

    def order(self, count: int, key: Key) -> np.ndarray:
        permuted: np.ndarray = key.permutations(1, count)[0]
        return permuted

    def carry(self, claim: Claim) -> Claim:
        claim = replace(claim, shuffled=True)
        if claim.share is not None:
            return pay_by_shares(claim, seen=claim.share)
        return pay_shuffled(claim, self.smallest, self) if claim.paid else claim
