"""Laws of the secure sum, as functions that fail on a broken one (`test_sabotage`)."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from scipy import stats

from sfumato.secure_sum import Phase, SumSettings
from sfumato.secure_sum.messages import Kind, read
from tests.secure_sum.rounds import Played, agreed, plain, play, rows_of
from tests.slow_chacha import slow_stream


def masked(played: Played, client: int) -> np.ndarray:
    settings = played.server.settings
    return np.frombuffer(read(played.sent[Phase.ROWS][client], Kind.ROW, settings, client), f"<u{settings.bits // 8}")


def masks(settings: SumSettings, seed: int = 0, zero: bool = False) -> dict[int, np.ndarray]:
    """What each client adds to its row."""
    rows = rows_of(settings)
    if zero:
        rows = {client: np.zeros_like(row) for client, row in rows.items()}
    played = play(settings, rows, seed=seed, until=Phase.ROWS)
    return {one: masked(played, one) - row.astype(f"<u{settings.bits // 8}") for one, row in rows.items()}


def law_of_the_sum() -> None:
    for bits in (32, 64):
        settings = agreed(6, bits=bits, smallest=4)
        rows = rows_of(settings)
        assert play(settings, rows).server.total().tolist() == plain(rows, settings.clients)
        server = play(settings, rows, {Phase.ROWS: {3, 15}}).server
        assert server.total().tolist() == plain(rows, server.survivors)


def law_of_one_pad() -> None:
    """What is added does not depend on the row, and is uniform: so every message fits every row equally well."""
    for bits in (32, 64):
        settings = agreed(3, bits=bits, dimension=40_000, smallest=3)
        first, second = masks(settings), masks(settings, zero=True)
        for client in settings.clients:
            assert (first[client] == second[client]).all()
            counts = np.bincount(first[client].view(np.uint8), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-6
            assert len(np.unique(first[client])) > 0.99 * settings.dimension


def law_of_fresh_masks() -> None:
    """The same secret of a client in two rounds: other masks, and other public keys."""
    one, two = agreed(), agreed(session=bytes(32))
    first, second = masks(one), masks(two)
    adverts = [
        set(play(settings, rows_of(settings), until=Phase.ADVERTS).sent[Phase.ADVERTS].values())
        for settings in (one, two)
    ]
    shown = [{message[42:][at : at + 32] for message in sent for at in (0, 32, 64)} for sent in adverts]
    assert len(shown[0]) == 15 and not shown[0] & shown[1]
    for client in one.clients:
        assert (first[client] != second[client]).all()


def hkdf(secret: bytes, settings: SumSettings, *words: bytes) -> bytes:
    """RFC 5869, by hand: one block."""
    info = b"".join(len(word).to_bytes(4, "big") + word for word in (b"sfumato secure sum", *words))
    inner = hmac.digest(settings.digest, secret, hashlib.sha256)
    return hmac.digest(inner, info + b"\x01", hashlib.sha256)


def stream(settings: SumSettings, key: bytes) -> np.ndarray:
    size = settings.dimension * settings.bits // 8
    return np.frombuffer(slow_stream(key, size), f"<u{settings.bits // 8}")


def law_of_whole_keys() -> None:
    """A message is the row and masks of ChaCha20 under all 256 bits of what was agreed on: worked out by hand."""
    for bits in (32, 64):
        settings = agreed(4, bits=bits, dimension=33)
        rows = rows_of(settings)
        played = play(settings, rows, until=Phase.ROWS)
        for me in settings.clients:
            client = played.clients[me]
            expected = rows[me].astype(f"<u{bits // 8}")
            expected = expected + stream(settings, hkdf(client._seed, settings, b"own", me.to_bytes(8, "big")))
            for other in settings.clients:
                if other == me:
                    continue
                public = X25519PublicKey.from_public_bytes(played.sent[Phase.ADVERTS][other][42:74])
                agreed_on = X25519PrivateKey.from_private_bytes(client._mask).exchange(public)
                names = [number.to_bytes(8, "big") for number in sorted((me, other))]
                mask = stream(settings, hkdf(agreed_on, settings, b"pair", *names))
                expected = expected + mask if me < other else expected - mask
            assert (masked(played, me) == expected).all()


def law_of_unlike_polynomials() -> None:
    """No coefficient is used twice, in one polynomial or in two: else differences of shares would tell differences of secrets."""
    from sfumato.secure_sum import shamir
    from sfumato.secure_sum.client import _Shares

    settings = agreed(5, smallest=5, colluding=3)
    assert settings.threshold == 4
    played = play(settings, rows_of(settings), until=Phase.ROWS)
    found: list[int] = []
    for owner in settings.clients:
        held: dict[int, _Shares] = {
            settings.places[one] + 1: played.clients[one]._received[owner] for one in settings.clients
        }
        for shares in ({at: one.of_key for at, one in held.items()}, {at: one.of_seed for at, one in held.items()}):
            found += coefficients(
                {at: shamir.from_bytes(share) for at, share in list(shares.items())[:4]}, shamir.PRIME
            )
    assert len(set(found)) == len(found) == 5 * 2 * 4
    assert all(number.bit_length() > 400 for index, number in enumerate(found) if index % 4)


def coefficients(shares: dict[int, int], prime: int) -> list[int]:
    """Of the polynomial through so many values: a system of equations, by Gauss."""
    system = [[pow(at, power, prime) for power in range(len(shares))] + [value] for at, value in shares.items()]
    for pivot in range(len(system)):
        inverse = pow(system[pivot][pivot], -1, prime)
        system[pivot] = [number * inverse % prime for number in system[pivot]]
        for row in range(len(system)):
            if row != pivot:
                factor = system[row][pivot]
                system[row] = [(a - factor * b) % prime for a, b in zip(system[row], system[pivot], strict=True)]
    return [row[-1] for row in system]
