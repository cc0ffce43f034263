"""What a guarantee says of a secure sum: who may collude, what the server may do, and what is assumed."""

from __future__ import annotations

import math
from fractions import Fraction

from sfumato.secure_sum.power import Power
from sfumato.secure_sum.settings import SumSettings


def assumptions(settings: SumSettings) -> tuple[str, ...]:
    """Everything that must be true for the server to learn the sum and nothing else, one sentence each.

    >>> settings = SumSettings.chosen(bytes(32), tuple(range(9)), 100, largest=2**20, noise=3.0, smallest=8, colluding=2)
    >>> print(*assumptions(settings), sep="\\n")
    the server follows the protocol of the secure sum, and reads all that it is sent
    at most 2 of the 9 clients of a round tell the server what they know; a sum then has at least 6 rows of others
    X25519, HKDF with SHA-256, ChaCha20 and Poly1305 are not broken, and clients draw their keys from a good source
    """
    count = len(settings.clients)
    collude = (
        f"at most {settings.colluding} of the {count} clients of a round {{do}}; a sum then has at least "
        f"{settings.smallest - settings.colluding} rows of others"
    )
    if settings.power is Power.FOLLOWS:
        found = (
            "the server follows the protocol of the secure sum, and reads all that it is sent",
            collude.format(do="tell the server what they know"),
            "X25519, HKDF with SHA-256, ChaCha20 and Poly1305 are not broken, and clients draw their keys from a good source",
        )
    else:
        found = (
            collude.format(do="collude with a server that may break the protocol in any way"),
            "each client knows the others' true signing keys from elsewhere than the server, and takes part in a session once",
            "X25519, HKDF with SHA-256 (as a random oracle), ChaCha20, Poly1305 and Ed25519 are not broken, and clients draw their "
            "keys from a good source",
        )
    return found if not settings.exposure else (*found, _drawn(settings))


def _drawn(settings: SumSettings) -> str:
    return (
        f"who colludes or drops out does not depend on which {settings.neighbours} neighbours were drawn for each client (but for "
        f"a chance of {_power_of_two(settings.exposure)} a round they then hide all but the sum)"
    )


def _power_of_two(chance: Fraction) -> str:
    """At least this chance: 2 to a whole power."""
    return f"2^{math.ceil(math.log2(chance.numerator) - math.log2(chance.denominator) + 1e-9)}"
