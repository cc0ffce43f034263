"""What a client shows of itself at the beginning of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.errors import BadValue
from sfumato.secure_sum.errors import BadMessage
from sfumato.secure_sum.keys import KEY, check_public, sign, verify
from sfumato.secure_sum.messages import advert_size
from sfumato.secure_sum.power import Power
from sfumato.secure_sum.settings import SumSettings

_PURPOSE = b"keys"


@dataclass(frozen=True)
class Advert:
    """A public key for masks, one for the channel to other clients, and the check of the seed of its own mask."""

    mask: bytes
    channel: bytes
    check: bytes


def known_keys(settings: SumSettings, verifying: Mapping[int, bytes] | None) -> dict[int, bytes]:
    """The verifying keys of the whole cohort, where they are needed."""
    found = {client: key for client, key in (verifying or {}).items() if len(key) == KEY}
    if settings.power is Power.ACTIVE and (missing := set(settings.clients) - found.keys()):
        raise BadValue(f"client {min(missing)} has no verifying key of {KEY} bytes. Hand in those of the whole cohort.")
    return found


def sign_advert(advert: Advert, settings: SumSettings, client: int, signing: Ed25519PrivateKey | None) -> bytes:
    """An advert as a record; against an active server signed by its client, for this round."""
    content = advert.mask + advert.channel + advert.check
    if settings.power is Power.FOLLOWS:
        return content
    assert signing is not None, "a client that has none is not made"
    return content + sign(signing, settings.digest, _PURPOSE, client.to_bytes(8, "big") + content)


def read_advert(record: bytes, settings: SumSettings, client: int, verifying: Mapping[int, bytes]) -> Advert:
    """The advert in a record, refused if a key is worth nothing or, against an active server, if its client did not sign it."""
    if len(record) != advert_size(settings):
        raise BadMessage(f"public keys of {len(record)} bytes; {advert_size(settings)} are due.")
    content, signature = record[: 3 * KEY], record[3 * KEY :]
    if settings.power is Power.ACTIVE:
        verify(verifying[client], signature, settings.digest, _PURPOSE, client.to_bytes(8, "big") + content)
    advert = Advert(content[:KEY], content[KEY : 2 * KEY], content[2 * KEY :])
    check_public(advert.mask)
    check_public(advert.channel)
    return advert
