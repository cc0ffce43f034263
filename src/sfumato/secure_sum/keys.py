"""The cryptography, all of it from the package `cryptography`: X25519, HKDF with SHA-256, ChaCha20-Poly1305 and Ed25519."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sfumato.secure_sum.errors import BadMessage

KEY = 32
SIGNATURE = 64
SEAL = 16  # what sealing adds
_ONCE = bytes(12)  # the nonce of a key that seals one message
_PROBE = X25519PrivateKey.from_private_bytes(bytes([1]) * KEY)  # any scalar sends a point of low order to zero


def public_of(private: bytes) -> bytes:
    """The public half of an X25519 key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes) -> bytes:
    """What both sides of an X25519 exchange know; a point of low order, which would make it known to all, is refused."""
    return _exchange(X25519PrivateKey.from_private_bytes(private), public)


def check_public(public: bytes) -> None:
    """Refuses the points with which nobody can agree on anything secret."""
    _exchange(_PROBE, public)


def _exchange(private: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise BadMessage("a public key is a point of low order, with which nothing stays secret.") from None


def derive(secret: bytes, digest: bytes, *words: bytes) -> bytes:
    """32 bytes from a secret, the digest of a round's settings and what they are for; other words give independent bytes."""
    info = b"".join(len(word).to_bytes(4, "big") + word for word in (b"sfumato secure sum", *words))
    return HKDF(algorithm=SHA256(), length=KEY, salt=digest, info=info).derive(secret)


def seal(key: bytes, content: bytes) -> bytes:
    """The content, unreadable and unchangeable for whoever does not have the key, which seals nothing else."""
    return ChaCha20Poly1305(key).encrypt(_ONCE, content, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """What was sealed with this key."""
    try:
        return ChaCha20Poly1305(key).decrypt(_ONCE, sealed, None)
    except InvalidTag:
        raise BadMessage(
            "a sealed share was changed on its way, or was sealed for somebody or something else."
        ) from None


def sign(key: Ed25519PrivateKey, digest: bytes, purpose: bytes, content: bytes) -> bytes:
    """A signature that holds for this round and purpose only."""
    return key.sign(_signed(digest, purpose, content))


def verify(public: bytes, signature: bytes, digest: bytes, purpose: bytes, content: bytes) -> None:
    """Refuses what the owner of a key did not sign, in this round and for this purpose."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _signed(digest, purpose, content))
    except InvalidSignature:
        raise BadMessage("a signature does not hold.") from None


def _signed(digest: bytes, purpose: bytes, content: bytes) -> bytes:
    return b"sfumato secure sum\0" + purpose + b"\0" + digest + content
