"""The server of the secure sum: it takes what clients send, says what each is sent next, and ends with the total."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum

import numpy as np

from sfumato.secure_sum.adverts import Advert, known_keys, read_advert
from sfumato.secure_sum.errors import BadMessage, GaveUp, Refused
from sfumato.secure_sum.keys import verify
from sfumato.secure_sum.masks import empty, from_modulus
from sfumato.secure_sum.messages import BOX, Kind, read, read_last_table, read_table, write, write_set, write_table
from sfumato.secure_sum.power import Power
from sfumato.secure_sum.settings import SumSettings
from sfumato.secure_sum.shamir import SIZE, from_bytes
from sfumato.secure_sum.survivors import CONFIRM, confirmed_content
from sfumato.secure_sum.unmasking import take_masks_off


class Phase(Enum):
    """What the server is waiting for."""

    ADVERTS = "public keys"
    SHARES = "sealed shares"
    ROWS = "masked rows"
    CONFIRMATIONS = "signatures under the survivors"
    UNMASKING = "shares that take the masks off"
    OVER = "nothing"


class Server:
    """One round at the server. Memory does not grow with rows: each is added when it comes.

    `take` a client's message, in any order within a phase; `advance` ends the phase, whoever is missing has dropped out, and gives
    the letters of the next; `total` ends the last. A message that is not as it should be raises BadMessage and changes nothing:
    its client is as one that did not answer. `verifying` is needed against an active server, by an honest one, to leave out
    whom the clients would not believe.
    """

    def __init__(self, settings: SumSettings, verifying: Mapping[int, bytes] | None = None) -> None:
        self.settings, self.phase = settings, Phase.ADVERTS
        self._verifying = known_keys(settings, verifying)
        self._waiting = frozenset(settings.clients)
        self._records: dict[int, bytes] = {}
        self._adverts: dict[int, Advert] = {}
        self._boxes: dict[int, dict[int, bytes]] = {}  # by sender, then receiver
        self._sum = empty(settings)
        self._survivors: set[int] = set()
        self._signatures: dict[int, bytes] = {}
        self._shares: dict[int, dict[int, bytes]] = {}  # by holder, then owner

    @property
    def waiting(self) -> frozenset[int]:
        """Whose message is due in this phase."""
        return self._waiting

    @property
    def survivors(self) -> tuple[int, ...]:
        """Whose rows are in the sum."""
        return tuple(sorted(self._survivors))

    def take(self, client: int, message: bytes) -> None:
        """A client's message of this phase."""
        if client not in self._waiting:
            raise BadMessage(f"client {client} is not awaited: it dropped out, or has answered.")
        takes: dict[Phase, Callable[[int, bytes], None]] = {
            Phase.ADVERTS: self._take_advert,
            Phase.SHARES: self._take_boxes,
            Phase.ROWS: self._take_row,
            Phase.CONFIRMATIONS: self._take_confirmation,
            Phase.UNMASKING: self._take_shares,
        }
        takes[self.phase](client, message)
        self._waiting -= {client}

    def _take_advert(self, client: int, message: bytes) -> None:
        record = bytes(read(message, Kind.ADVERT, self.settings, client))
        self._adverts[client] = read_advert(record, self.settings, client, self._verifying)
        self._records[client] = record

    def _take_boxes(self, client: int, message: bytes) -> None:
        boxes = read_last_table(self.settings, read(message, Kind.SHARES, self.settings, client), BOX)
        if boxes.keys() != self._here(client, self._adverts) - {client}:
            raise BadMessage(f"client {client} shares with others than its neighbours that are there.")
        self._boxes[client] = boxes

    def _take_row(self, client: int, message: bytes) -> None:
        body = read(message, Kind.ROW, self.settings, client)
        if len(body) != self._sum.nbytes:
            raise BadMessage(f"a row of {len(body)} bytes; {self._sum.nbytes} are due.")
        self._sum += np.frombuffer(body, self._sum.dtype)
        self._survivors.add(client)

    def _take_confirmation(self, client: int, message: bytes) -> None:
        signature = bytes(read(message, Kind.CONFIRM, self.settings, client))
        content = confirmed_content(self.settings, self._records, self._boxes, self._survivors)
        verify(self._verifying[client], signature, self.settings.digest, CONFIRM, content)
        self._signatures[client] = signature

    def _take_shares(self, client: int, message: bytes) -> None:
        answered, rest = read_table(self.settings, read(message, Kind.UNMASK, self.settings, client), 0)
        if answered.keys() != self._survivors:
            raise BadMessage(f"client {client} answers for another set of survivors.")
        shares = read_last_table(self.settings, rest, SIZE)
        if shares.keys() != self._here(client, self._boxes):
            raise BadMessage(f"client {client} gives shares of others than the neighbours that shared with it.")
        for share in shares.values():
            from_bytes(share)
        self._shares[client] = shares

    def _here(self, client: int, present: Collection[int]) -> frozenset[int]:
        """Of a client's neighbours and itself, those that are present."""
        return self.settings.near(client) & frozenset(present)

    def advance(self) -> dict[int, bytes]:
        """The next phase begins: a letter for each client that is still there. Too few, and the round is given up."""
        steps: dict[Phase, tuple[Phase, Collection[int], Callable[[], dict[int, bytes]]]] = {
            Phase.ADVERTS: (Phase.SHARES, self._adverts, self._letters_of_adverts),
            Phase.SHARES: (Phase.ROWS, self._boxes, self._letters_of_boxes),
            Phase.ROWS: (Phase.CONFIRMATIONS, self._survivors, self._letters_of_survivors),
            Phase.CONFIRMATIONS: (Phase.UNMASKING, self._signatures, self._letters_of_confirmations),
        }
        if self.phase not in steps:
            raise Refused(f"no phase follows the one that waits for {self.phase.value}. Use total().")
        following, present, letters = steps[self.phase]
        fewest = self.settings.threshold if self.phase is Phase.CONFIRMATIONS else self.settings.smallest
        if len(present) < fewest:
            self._give_up(f"{len(present)} clients sent {self.phase.value}; {fewest} are needed.")
        follows = self.settings.power is Power.FOLLOWS
        self.phase = Phase.UNMASKING if follows and following is Phase.CONFIRMATIONS else following
        written = letters()
        self._waiting = frozenset(written)
        return written

    def _give_up(self, why: str) -> None:
        self.phase, self._waiting = Phase.OVER, frozenset()
        raise GaveUp(f"the round is given up: {why}")

    def _letters_of_adverts(self) -> dict[int, bytes]:
        near = {client: self._here(client, self._adverts) for client in self._adverts}
        tables = {client: {other: self._records[other] for other in others} for client, others in near.items()}
        return self._letters(Kind.ADVERTS, tables)

    def _letters_of_boxes(self) -> dict[int, bytes]:
        near = {client: self._here(client, self._boxes) - {client} for client in self._boxes}
        tables = {client: {other: self._boxes[other][client] for other in others} for client, others in near.items()}
        return self._letters(Kind.BOXES, tables)

    def _letters(self, kind: Kind, tables: Mapping[int, Mapping[int, bytes]]) -> dict[int, bytes]:
        write_one = {client: write_table(self.settings, table) for client, table in tables.items()}
        return {client: write(kind, self.settings, client, body) for client, body in write_one.items()}

    def _letters_of_survivors(self) -> dict[int, bytes]:
        body = write_set(self.settings, self._survivors)
        return {client: write(Kind.SURVIVORS, self.settings, client, body) for client in self._survivors}

    def _letters_of_confirmations(self) -> dict[int, bytes]:
        body = write_set(self.settings, self._survivors) + write_table(self.settings, self._signatures)
        return {client: write(Kind.CONFIRMED, self.settings, client, body) for client in self._signatures}

    def total(self) -> np.ndarray:
        """The sum of the survivors' rows, as signed whole numbers."""
        if self.phase is not Phase.UNMASKING:
            raise Refused(f"the server still waits for {self.phase.value}; there is no total yet.")
        self.phase, self._waiting = Phase.OVER, frozenset()
        held = {
            owner: {who: given[owner] for who, given in self._shares.items() if owner in given} for owner in self._boxes
        }
        total = take_masks_off(self.settings, self._sum, self._survivors, self._adverts, held)
        return from_modulus(self.settings, total)
