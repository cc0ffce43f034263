"""Where a run's randomness comes from, and keys for four trust domains.

PRIVACY R5: what is secret in a round (cohort, noise, batches, masks) is drawn from 32 bytes that the operating system gives when
that round has been reserved. They are never written down and serve that round alone. So no two outputs share noise, whatever
else has changed: the data, the code, the machine, or which copy of a folder a run was resumed from.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from sfumato.errors import UnsoundRound
from sfumato.key import Key
from sfumato.pieces.protocol import Turn


@dataclass(frozen=True)
class Keys:
    """What clients share (public randomness), what only the server knows (cohort, noise), what each client knows alone, and what
    only the channel knows (in which order it passes messages on). They are siblings, so whoever holds one can compute nothing
    of another.

    `lasting` stays the same from a run's start to its end, for pieces that draw something for several rounds (groups of clients,
    a teacher, a stream of correlated noise). A resumed run starts with another one.

    >>> keys = Keys.of(Key.from_seed(0))
    >>> keys.opening(3), keys.server_piece(0, round=3), keys.client(17, round=3)
    (Key('/shared/round:number=3'), Key('/server/piece:nth=0/round:number=3'), Key('/clients/client:id=17/round:number=3'))
    """

    shared: Key
    server: Key
    clients: Key
    channel: Key
    lasting: Key

    @staticmethod
    def of(round: Key, lasting: Key | None = None) -> Keys:
        """The keys of a round; those of a single one by default last as long as itself."""
        own = {domain: round.child(domain) for domain in ("shared", "server", "clients", "channel")}
        return Keys(**own, lasting=lasting or round.child("lasting"))

    def opening(self, round: int) -> Key:
        """What is sent to the clients of a round; it reveals nothing of other rounds."""
        return self.shared.child("round", number=round)

    def turn(self, round: int) -> Turn:
        """What the sampler draws a round's cohort from: the server's."""
        return Turn(round, self.server.child("cohort", round=round), self.lasting.child("cohorts"))

    def server_piece(self, nth: int, round: int) -> Key:
        """What a server piece draws from in a round."""
        return self.server.child("piece", nth=nth).child("round", number=round)

    def stream(self, nth: int) -> Key:
        """What a server piece draws from that needs the noise of earlier rounds again."""
        return self.lasting.child("stream", nth=nth)

    def aggregate(self, round: int) -> Key:
        return self.server.child("aggregate", round=round)

    def optimizer(self, round: int) -> Key:
        return self.server.child("optimizer", round=round)

    def client(self, client: int, round: int) -> Key:
        return client_key(self.clients, client, round)

    @property
    def lasting_clients(self) -> Key:
        """The root of the keys that clients keep from start to end."""
        return self.lasting.child("clients")


def client_key(clients: Key, client: int, round: int) -> Key:
    """A client's own key in a round: batches, dropout, its noise. A client could be handed the key above it."""
    return clients.child("client", id=client).child("round", number=round)


def lasting_key(clients: Key, client: int) -> Key:
    """A client's own key from a run's start to its end: what it does with this key it can do again, in any round."""
    return clients.child("client", id=client).child("lasting")


@dataclass(frozen=True)
class Randomness:
    """Gives each reserved round its keys: from the system, or from the `root` of a seeded run.

    A seed makes a run repeatable, so it is a simulation: a round that is begun again draws the same. Its `name` is in the ledger,
    where the round is then counted once. `of` is everything that is written of the run, so other settings draw other numbers.
    """

    root: Key | None = None
    _lasting: Key = field(default_factory=Key.from_system, repr=False)
    _process: int = field(default_factory=os.getpid, repr=False)

    @staticmethod
    def seeded(seed: int, of: str) -> Randomness:
        """That of a simulation."""
        root = Key.from_seed(seed).child("run", of=of)
        return Randomness(root, root.child("lasting"))

    def name(self, round: int) -> str | None:
        """What names the noise of a round, where it can be drawn again; it does not reveal it."""
        return None if self.root is None else self._of_round(self.root, round).digest

    @property
    def is_forked(self) -> bool:
        """Whether this is another process than the one that the run was begun in."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Refuse a forked process, before it reserves anything."""
        if self.is_forked:
            raise UnsoundRound(
                "this process was forked from the one that the run was begun in, so two processes would continue one run: each "
                "counts its own rounds alone, and draws groups and teachers that the other has drawn.",
                "continue the run in the process that began it, or begin another run here.",
            )

    def keys(self, round: int) -> Keys:
        """The keys of a round that has just been reserved. Of an unseeded run, every call gives others."""
        secret = Key.from_system() if self.root is None else self._of_round(self.root, round)
        return Keys.of(secret, self._lasting)

    @staticmethod
    def _of_round(root: Key, round: int) -> Key:
        return root.child("round", number=round)
