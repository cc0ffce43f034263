"""Models that stay at the client: what a client keeps between rounds, and starts from when it is drawn again."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.account.event import Unit
from sfumato.claim import Claim
from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.protocol import ControlPiece, PersonalPiece
from sfumato.shapes import Row, Rows


@dataclass(frozen=True)
class HelperBlend(PersonalPiece):
    """The helper model of PriFedSync, equation 2.1: (1 - weight) times the client's own model plus weight times the global.

    Clients that are not drawn keep their helper, and one that was never drawn begins at the global model. With weight 0 a
    client never looks at the others; FedAvg has no personal piece at all. States, for records: free,
    if the client's own model was private before it was stored, because the next round's training reads it.
    """

    weight: float = 0.1
    own: tuple[tuple[int, float], ...] = ()  # clients with a weight of their own

    def __post_init__(self) -> None:
        for weight in (self.weight, *(weight for _, weight in self.own)):
            if not 0.0 <= weight <= 1.0:
                raise BadValue(f"HelperBlend(weight={weight}): the weight of the global model is from 0 to 1.")

    @property
    def by_number(self) -> bool:
        return bool(self.own)

    def keep(self, own: Row, params: Row, client: int) -> Row:
        weight = next((weight for number, weight in self.own if number == client), self.weight)
        return (1.0 - weight) * own + weight * params

    def carry(self, claim: Claim) -> Claim:
        if claim.unit is Unit.RECORD and not claim.local_paid:
            raise UnsoundRound(
                "HelperBlend stores a model that local training made without noise, and the next round reads it: a record would "
                "then be used again where nothing pays for it.",
                "train with DpSgd, or leave personal models out.",
            )
        return claim


@dataclass(frozen=True)
class ControlVariates(ControlPiece):
    """SCAFFOLD (Karimireddy et al. 2020) by its option II: each step of a client adds c - c_i to its gradient, against drift.

    With K steps of rate lr, c_i becomes c_i - c - message_i / (K lr), from the message as it was sent, and c moves by the
    expected share of clients times (-c - release / (K lr)), from the release alone. States, for records: free where the message
    itself is paid for before it leaves, since c_i is computed from nothing else; variates from raw gradients are not offered. For
    clients: a row is clipped whatever its client remembers, so Poisson cohorts cost what they did; a fixed size loses its
    amplification, and is refused under add/remove (PRIVACY R6). Noise shares are refused for both: a client's next row would
    then tell of its share, so that what hides the victim in the last sum would show in the next one.
    """

    def correction(self, own: Rows, shared: Row) -> Rows:
        return shared - own

    def remember(self, own: Rows, shared: Row, messages: Rows, length: float) -> Rows:
        return own - shared - messages / length

    def follow(self, shared: Row, release: Row, length: float, share: float) -> Row:
        return shared - share * (shared + release / length)

    def carry(self, claim: Claim) -> Claim:
        if claim.share is not None:
            raise UnsoundRound(
                "ControlVariates remembers a message with its share of the noise, and its next row depends on it: later sums "
                "then tell of the noise that hides a client in earlier ones.",
                "add the noise with AddNoise, in the server slot or whole in every message, or leave control variates out.",
            )
        if claim.unit is Unit.RECORD and claim.server is None:
            raise UnsoundRound(
                "ControlVariates remembers a message that was not private by itself when it left, and the next round reads it: a "
                "record would then be used again where nothing pays for it.",
                "train with DpSgd, or add noise to every message with AddNoise in the client slot.",
            )
        return claim
