"""Four keys for four trust domains. They are siblings, so whoever holds one can compute nothing of another."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.key import Key
from sfumato.pieces.protocol import Turn


@dataclass(frozen=True)
class Keys:
    """What clients share (public randomness), what only the server knows (cohort, noise), what each client knows alone, and what
    only the channel knows (in which order it passes messages on).

    >>> keys = Keys.of(Key.from_seed(0))
    >>> keys.opening(3), keys.server_piece(0), keys.client(17, round=3)
    (Key('/shared/round:number=3'), Key('/server/piece:nth=0'), Key('/clients/client:id=17/round:number=3'))
    """

    shared: Key
    server: Key
    clients: Key
    channel: Key

    @staticmethod
    def of(run: Key) -> Keys:
        return Keys(*(run.child(domain) for domain in ("shared", "server", "clients", "channel")))

    def opening(self, round: int) -> Key:
        """What is sent to the clients of a round; it tells nothing of other rounds."""
        return self.shared.child("round", number=round)

    def turn(self, round: int) -> Turn:
        """What the sampler draws a round's cohort from: the server's."""
        return Turn(round, self.server.child("cohort", round=round), self.server.child("cohorts"))

    def server_piece(self, nth: int) -> Key:
        """The root of a server piece's keys, one for each round."""
        return self.server.child("piece", nth=nth)

    def aggregate(self, round: int) -> Key:
        return self.server.child("aggregate", round=round)

    def optimizer(self, round: int) -> Key:
        return self.server.child("optimizer", round=round)

    def client(self, client: int, round: int) -> Key:
        return client_key(self.clients, client, round)


def client_key(clients: Key, client: int, round: int) -> Key:
    """A client's own key in a round: batches, dropout, its noise. A client could be handed the key above it."""
    return clients.child("client", id=client).child("round", number=round)


def lasting_key(clients: Key, client: int) -> Key:
    """A client's own key for a whole run: what it does with this key it can do again, in any round."""
    return clients.child("client", id=client).child("lasting")
