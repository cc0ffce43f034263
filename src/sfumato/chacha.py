"""The ChaCha20 key stream of RFC 8439: by OpenSSL where the package `cryptography` is there, else by numpy. The same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

try:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
except ImportError:  # the extra "fast" is not installed
    Cipher = None  # type: ignore[assignment, misc]

_BLOCK = 64
_CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4")


def keystream(key: bytes, size: int, part: int) -> Iterator[memoryview]:
    """The first `size` bytes of the stream of a 32-byte key, with nonce and counter from zero: for keys that are used once.

    They come in parts, each of which is overwritten by the next: short ones stay in the cache.

    >>> next(keystream(bytes(32), 8, 64)).hex()
    '76b8e0ada0f13d90'
    """
    if Cipher is None:
        yield from numpy_keystream(key, size, part)
        return
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    zeros, room = memoryview(bytes(min(part, size))), bytearray(min(part, size) + _BLOCK)  # it asks for a block more
    for start in range(0, size, part):
        count = cipher.update_into(zeros[: size - start], room)
        yield memoryview(room)[:count]


def numpy_keystream(key: bytes, size: int, part: int) -> Iterator[memoryview]:
    """The slow twin, which needs nothing; `part` is a whole number of blocks."""
    for start in range(0, size, part):
        blocks = -(-min(part, size - start) // _BLOCK)
        yield memoryview(bytearray(_blocks(key, start // _BLOCK, blocks)))[: min(part, size - start)]


def _blocks(key: bytes, start: int, count: int) -> bytes:
    state = np.zeros((16, count), np.uint32)
    state[:4] = _CONSTANTS[:, None]
    state[4:12] = np.frombuffer(key, "<u4")[:, None]
    counters = np.arange(start, start + count, dtype=np.uint64)
    state[12], state[13] = counters.astype(np.uint32), (counters >> np.uint64(32)).astype(np.uint32)
    x = state.copy()
    for _ in range(10):
        for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
            _quarter(x, a, b, c, d)
        for a, b, c, d in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            _quarter(x, a, b, c, d)
    x += state
    return np.ascontiguousarray(x.T).astype("<u4").tobytes()


def _quarter(x: np.ndarray, a: int, b: int, c: int, d: int) -> None:
    for one, two, three, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[one] += x[two]
        x[three] ^= x[one]
        x[three] = (x[three] << np.uint32(turn)) | (x[three] >> np.uint32(32 - turn))
