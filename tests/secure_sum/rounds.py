"""Rounds of the secure sum for the tests, with every message at hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.key import Key
from sfumato.secure_sum import Client, Phase, Power, SecureSumError, Server, SumSettings

LATER = Callable[[Phase, int, bytes], bytes]  # what becomes of a message on its way
PHASES = (Phase.ADVERTS, Phase.SHARES, Phase.ROWS, Phase.CONFIRMATIONS, Phase.UNMASKING)


def agreed(count: int = 5, **other: Any) -> SumSettings:
    """Settings of a small round, of clients 3, 7, 11, ..."""
    facts: dict[str, Any] = {
        "session": bytes(range(32)),
        "clients": tuple(range(3, 3 + 4 * count, 4)),
        "dimension": 6,
        "largest": 2**20,
        "noise": 5.0,
        "smallest": count - 1,
        "colluding": 1,
    }
    return SumSettings.chosen(**{**facts, **other})


def signing(client: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(Key.from_seed(client).stream(32))


def verifying(settings: SumSettings) -> dict[int, bytes] | None:
    if settings.power is Power.FOLLOWS:
        return None
    return {client: signing(client).public_key().public_bytes_raw() for client in settings.clients}


def client_of(settings: SumSettings, number: int, seed: int = 0) -> Client:
    own = signing(number) if settings.power is Power.ACTIVE else None
    return Client(settings, number, Key.from_seed(seed).child("client", number=number), own, verifying(settings))


def rows_of(settings: SumSettings, seed: int = 0) -> dict[int, np.ndarray]:
    """Whole numbers of either sign, near the largest too."""
    words = Key.from_seed(seed).child("rows").integers(len(settings.clients) * settings.dimension)
    numbers = words.astype(np.int64) % (2 * settings.largest + 1) - settings.largest
    return dict(zip(settings.clients, numbers.reshape(len(settings.clients), -1), strict=True))


@dataclass
class Played:
    """A round as it went."""

    server: Server
    clients: dict[int, Client]
    sent: dict[Phase, dict[int, bytes]] = field(default_factory=dict)  # by clients
    letters: dict[Phase, dict[int, bytes]] = field(default_factory=dict)  # to clients, in the phase that they begin
    refused: dict[int, SecureSumError] = field(default_factory=dict)


def step(client: Client, phase: Phase, row: np.ndarray, letter: bytes) -> bytes:
    if phase is Phase.ADVERTS:
        return client.advertise()
    if phase is Phase.ROWS:
        return client.mask(row, letter)
    return {Phase.SHARES: client.share, Phase.CONFIRMATIONS: client.confirm, Phase.UNMASKING: client.unmask}[phase](
        letter
    )


def play(
    settings: SumSettings,
    rows: Mapping[int, np.ndarray],
    silent: Mapping[Phase, Collection[int]] | None = None,
    seed: int = 0,
    until: Phase = Phase.OVER,
    up: LATER = lambda phase, client, message: message,
    down: LATER = lambda phase, client, message: message,
) -> Played:
    """A round up to the end of a phase; `silent` clients say nothing from a phase on, whoever refuses says nothing more."""
    clients = {number: client_of(settings, number, seed) for number in settings.clients}
    played = Played(Server(settings, verifying(settings)), clients)
    letters: dict[int, bytes] = dict.fromkeys(settings.clients, b"")
    gone: set[int] = set()
    while True:
        phase = played.server.phase
        gone |= set((silent or {}).get(phase, ()))
        played.letters[phase], played.sent[phase] = letters, {}
        for number in sorted(letters.keys() - gone):
            try:
                message = step(clients[number], phase, rows[number], down(phase, number, letters[number]))
                played.sent[phase][number] = message
                played.server.take(number, up(phase, number, message))
            except SecureSumError as error:
                gone.add(number)
                played.refused[number] = error
        if phase in (until, Phase.UNMASKING):
            return played
        letters = played.server.advance()


def plain(rows: Mapping[int, np.ndarray], survivors: Collection[int]) -> list[int]:
    """The slow twin of the whole protocol."""
    return [sum(int(rows[client][at]) for client in survivors) for at in range(len(next(iter(rows.values()))))]
