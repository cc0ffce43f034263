"""What a client agrees to before it gives shares away: one set of survivors, large enough, with itself in it.

Why an active server then learns the sum of all honest survivors' rows, or nothing. All honest clients that answer do so for one
set S (`SumSettings`). Let v be one of them. It holds shares of everybody in S, or it would have refused; so its row lies under
a mask in common with each honest w in S, made with the one key that w signed in this session. Of neither v nor w the mask key
can be given back: honest clients gave shares of seeds only, and the colluders' are too few. So w's row can be read only together
with v's, if both put that mask on, and else not at all. An honest client outside S has only its mask key given back: its
seed still hides it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from sfumato.secure_sum.errors import Refused
from sfumato.secure_sum.keys import verify
from sfumato.secure_sum.messages import write_set
from sfumato.secure_sum.settings import SumSettings

CONFIRM = b"survivors"


def check_survivors(settings: SumSettings, client: int, survivors: Collection[int], received: Collection[int]) -> None:
    """Refuses a set of survivors with which more than a large enough sum could be learnt.

    `received`: whose shares the client holds, its own among them.
    """
    if client not in survivors:
        raise Refused(f"client {client} sent its row, and is said to have dropped out: its masks would be shown.")
    if len(survivors) < settings.smallest:
        raise Refused(f"a sum of {len(survivors)} rows is asked for; the smallest is of {settings.smallest}.")
    near = settings.near(client) & frozenset(survivors)
    if strangers := near - frozenset(received):
        raise Refused(
            f"client {min(strangers)} is said to have sent a row, but never shared its keys with client {client}."
        )
    if len(near) < settings.threshold:
        raise Refused(f"only {len(near)} neighbours are left, and a secret needs {settings.threshold} shares.")


def confirmed_content(
    settings: SumSettings, adverts: Mapping[int, bytes], received: Collection[int], survivors: Collection[int]
) -> bytes:
    """What a client signs of a round: whose keys it was shown, who shared with it, and who is said to have survived."""
    shown = hashlib.blake2b(digest_size=32, person=b"sfumato-sum-keys")
    for client in sorted(adverts):
        shown.update(client.to_bytes(8, "big") + adverts[client])
    return shown.digest() + write_set(settings, received) + write_set(settings, survivors)


def check_confirmations(
    settings: SumSettings,
    content: bytes,
    survivors: Collection[int],
    signatures: Mapping[int, bytes],
    verifying: Mapping[int, bytes],
) -> None:
    """Refuses a set of survivors that too few of them have signed."""
    if len(signatures) < settings.threshold:
        raise Refused(f"{len(signatures)} clients confirm the survivors; {settings.threshold} are needed.")
    for client, signature in signatures.items():
        if client not in survivors:
            raise Refused(f"client {client} confirms a set of survivors in which it is not.")
        verify(verifying[client], signature, settings.digest, CONFIRM, content)
