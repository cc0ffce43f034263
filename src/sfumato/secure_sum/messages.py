"""The bytes that travel, and a reader that takes nothing else.

A message is a head (version, kind, digest of the settings, the client that sent it or for whom it is) and a body. Lists are tables:
one bit for each client of the cohort, then one record of a fixed size for each bit that is set, in order. So nothing can be
twice, out of order, of another cohort or too long, and whatever is left over is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from enum import IntEnum

import numpy as np

from sfumato.secure_sum.errors import BadMessage
from sfumato.secure_sum.keys import KEY, SEAL, SIGNATURE
from sfumato.secure_sum.power import Power
from sfumato.secure_sum.settings import SumSettings
from sfumato.secure_sum.shamir import SIZE

VERSION = 1
_HEAD = struct.Struct(">BB32sQ")
BOX = 2 * SIZE + SEAL  # a sealed share of a mask key and of a seed


class Kind(IntEnum):
    """What a message is: from a client (below 16) or to one."""

    ADVERT = 1
    SHARES = 2
    ROW = 3
    CONFIRM = 4
    UNMASK = 5
    ADVERTS = 17
    BOXES = 18
    SURVIVORS = 19
    CONFIRMED = 20


def advert_size(settings: SumSettings) -> int:
    """Two public keys, the check of a seed and, against an active server, a signature."""
    return 3 * KEY + (SIGNATURE if settings.power is Power.ACTIVE else 0)


def write(kind: Kind, settings: SumSettings, client: int, body: bytes) -> bytes:
    """A whole message."""
    return _HEAD.pack(VERSION, kind, settings.digest, client) + body


def read(message: bytes, kind: Kind, settings: SumSettings, client: int) -> memoryview:
    """The body of the message that is due from or for this client."""
    if len(message) < _HEAD.size:
        raise BadMessage(f"a message of {len(message)} bytes has no head.")
    version, found, digest, sender = _HEAD.unpack_from(message)
    if version != VERSION:
        raise BadMessage(
            f"a message of version {version}: this is version {VERSION}. Use the same release on all machines."
        )
    if found != kind:
        raise BadMessage(f"a message of kind {found} where {kind.name.lower()} is due.")
    if digest != settings.digest:
        raise BadMessage("a message of another round, or of one with other settings.")
    if sender != client:
        raise BadMessage(f"a message of client {sender} where one of client {client} is due.")
    return memoryview(message)[_HEAD.size :]


def write_table(settings: SumSettings, records: Mapping[int, bytes]) -> bytes:
    """Who, and a record of each."""
    bits = np.zeros(len(settings.clients), np.uint8)
    bits[[settings.places[client] for client in records]] = 1
    return np.packbits(bits).tobytes() + b"".join(records[client] for client in sorted(records))


def read_table(settings: SumSettings, body: memoryview, size: int) -> tuple[dict[int, bytes], memoryview]:
    """Who, with a record of so many bytes each; and what follows."""
    count = len(settings.clients)
    start = (count + 7) // 8
    bits = np.unpackbits(np.frombuffer(body[:start], np.uint8))
    if bits[count:].any():
        raise BadMessage("a table names clients outside the cohort.")
    listed = [settings.clients[place] for place in np.flatnonzero(bits)]
    end = start + size * len(listed)
    if len(body) < end:
        raise BadMessage("a table is cut short.")
    records = {client: bytes(body[start + size * at :][:size]) for at, client in enumerate(listed)}
    return records, body[end:]


def read_last_table(settings: SumSettings, body: memoryview, size: int) -> dict[int, bytes]:
    """A table after which nothing follows."""
    records, rest = read_table(settings, body, size)
    if len(rest):
        raise BadMessage(f"{len(rest)} bytes too many.")
    return records


def write_set(settings: SumSettings, clients: Collection[int]) -> bytes:
    """A table without records."""
    return write_table(settings, dict.fromkeys(clients, b""))
