"""The keystream again, from RFC 8439's block function in numpy: shares no code with the library, and is slow."""

from __future__ import annotations

import numpy as np

_BLOCK = 64
_CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4")


class SlowKeystream:
    """Bytes are computed from their position alone, so they cannot depend on how they are read."""

    def __init__(self, key: bytes) -> None:
        self._key, self._position = bytes(key), 0

    def read(self, size: int) -> bytearray:
        first, end = self._position // _BLOCK, self._position + size
        found = _blocks(self._key, first, -(-end // _BLOCK) - first)
        skip, self._position = self._position - first * _BLOCK, end
        return bytearray(found[skip : skip + size])


def slow_stream(key: bytes, size: int) -> bytes:
    return bytes(SlowKeystream(key).read(size))


def _blocks(key: bytes, start: int, count: int) -> bytes:
    state = np.zeros((16, count), np.uint32)
    state[:4] = _CONSTANTS[:, None]
    state[4:12] = np.frombuffer(key, "<u4")[:, None]
    state[12] = np.arange(start, start + count, dtype=np.uint32)
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
