"""Masks: uniform rows of whole numbers modulo 2^bits, the ChaCha20 stream of a 32-byte key that is used for one round."""

from __future__ import annotations

import numpy as np

from sfumato.chacha import BLOCK, Keystream
from sfumato.secure_sum.keys import agree, derive
from sfumato.secure_sum.settings import SumSettings


def empty(settings: SumSettings) -> np.ndarray:
    """A row of zeros in the numbers of the sum."""
    return np.zeros(settings.dimension, f"<u{settings.bits // 8}")


def add_mask(row: np.ndarray, key: bytes, sign: int) -> None:
    """Add the mask of a key to a row in place, or take it away."""
    stream, length = Keystream(key), BLOCK // row.itemsize
    for start in range(0, len(row), length):
        here = row[start : start + length]
        mask = np.frombuffer(stream.read(here.nbytes), row.dtype)
        (np.add if sign > 0 else np.subtract)(here, mask, out=here)


def sign_of(client: int, other: int) -> int:
    """Of two clients the lower adds their common mask and the higher takes it away, so that a sum of both does not have it."""
    return 1 if client < other else -1


def pair_key(settings: SumSettings, private: bytes, public: bytes, client: int, other: int) -> bytes:
    """The key of the mask that two clients have in common: of either one's private and the other's public key."""
    low, high = sorted((client, other))
    return derive(agree(private, public), settings.digest, b"pair", low.to_bytes(8, "big"), high.to_bytes(8, "big"))


def own_key(settings: SumSettings, seed: bytes, client: int) -> bytes:
    """The key of the mask that a client puts over all others, and takes off once its row is among the survivors'."""
    return derive(seed, settings.digest, b"own", client.to_bytes(8, "big"))


def seed_check(settings: SumSettings, seed: bytes, client: int) -> bytes:
    """What shows that a seed was given back rightly; as an independent output of HKDF it tells nothing of the mask."""
    return derive(seed, settings.digest, b"check", client.to_bytes(8, "big"))


def to_modulus(settings: SumSettings, row: np.ndarray) -> np.ndarray:
    """Signed whole numbers modulo 2^bits."""
    return row.astype(np.int64).astype(f"<u{settings.bits // 8}")


def from_modulus(settings: SumSettings, row: np.ndarray) -> np.ndarray:
    """Numbers modulo 2^bits as signed ones, those from 2^(bits-1) on below zero."""
    signed: np.ndarray = row.view(f"<i{settings.bits // 8}").astype(np.int64)
    return signed
