"""Shares of a secret, any `threshold` of which give it back, and fewer of which tell nothing (Shamir 1979).

A share is the value, at a place that is not 0, of a polynomial of degree threshold - 1 over a prime field, whose value at 0 is the
secret and whose other coefficients are uniform. Through fewer than `threshold` values and any secret there goes the same number
of polynomials (one, if exactly one value is missing), so whoever has these values has learnt nothing, whatever they compute.

The prime is 2^521 - 1: it holds 32 bytes whole, and a uniform number below it is 521 bits that are not all ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from sfumato.key import Key
from sfumato.secure_sum.errors import BadMessage

BITS = 521
PRIME = (1 << BITS) - 1
SIZE = 66  # bytes of a share
SECRET = 32  # bytes of a secret


def polynomial(secret: bytes, threshold: int, key: Key) -> list[int]:
    """The secret, then threshold - 1 uniform numbers of the field."""
    return [int.from_bytes(secret, "big"), *(_uniform(key.child("coefficient", of=of)) for of in range(1, threshold))]


def _uniform(key: Key) -> int:
    attempt = 0
    while (drawn := int.from_bytes(key.child("try", number=attempt).stream(SIZE), "big") & PRIME) == PRIME:
        attempt += 1
    return drawn


def split(coefficients: Sequence[int], places: Iterable[int], prime: int = PRIME) -> dict[int, int]:
    """The polynomial's value at each place.

    >>> split([5, 2], [1, 2, 3], prime=7)
    {1: 0, 2: 2, 3: 4}
    """
    return {place: _value(coefficients, place, prime) for place in places}


def _value(coefficients: Sequence[int], place: int, prime: int) -> int:
    if not 0 < place < prime:
        raise ValueError(f"a share at place {place}: its secret is at 0, and places go up to {prime - 1}.")
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * place + coefficient) % prime
    return value


def join(shares: Mapping[int, int], prime: int = PRIME) -> int:
    """The value at 0 of the polynomial of least degree through these values (Lagrange).

    >>> join({1: 0, 3: 4}, prime=7)
    5
    """
    weights = _weights(tuple(shares), prime)
    return sum(weight * value for weight, value in zip(weights, shares.values(), strict=True)) % prime


@lru_cache(maxsize=8)  # where everybody is a neighbour, the same places give back every secret
def _weights(places: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """How much of each value is in the value at 0."""
    found = []
    for place in places:
        above = below = 1
        for other in places:
            if other != place:
                above = above * other % prime
                below = below * (other - place) % prime
        found.append(above * pow(below, -1, prime) % prime)
    return tuple(found)


def to_bytes(share: int) -> bytes:
    """A number of the field, as bytes."""
    return share.to_bytes(SIZE, "big")


def from_bytes(share: bytes) -> int:
    """A number of the field, from bytes that hold one."""
    number = int.from_bytes(share, "big")
    if len(share) != SIZE or number >= PRIME:
        raise BadMessage("a share is no number of the field.")
    return number


def secret_of(shares: Mapping[int, int]) -> bytes:
    """The 32 bytes that were split, from exactly as many shares as the threshold."""
    found = join(shares)
    if found >= 2 ** (8 * SECRET):
        raise BadMessage("shares of one secret do not fit together.")
    return found.to_bytes(SECRET, "big")
