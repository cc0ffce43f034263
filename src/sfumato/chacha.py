"""The ChaCha20 keystream of RFC 8439, by the package `cryptography`."""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

BLOCK = 2**20  # bytes that a long draw reads at a time: what is made of them stays in the processor's cache


class Keystream:
    """The bytes of one 32-byte key, nonce and counter from zero. `read` gives the next ones.

    No byte is given twice: one cipher counts on over all reads, refuses to go past its counter (256 GiB), and every read
    is a new buffer, which later reads leave alone. A key is for one keystream.

    >>> stream = Keystream(bytes(32))
    >>> stream.read(4).hex(), stream.read(4).hex()
    ('76b8e0ad', 'a0f13d90')
    """

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def read(self, size: int) -> bytearray:
        return bytearray(self._encryptor.update(bytes(size)))
