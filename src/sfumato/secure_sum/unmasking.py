"""What the server works out at the end of a round: secrets from shares, and the masks that do not cancel."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from sfumato.secure_sum import shamir
from sfumato.secure_sum.adverts import Advert
from sfumato.secure_sum.errors import BadMessage, GaveUp
from sfumato.secure_sum.keys import public_of
from sfumato.secure_sum.masks import add_mask, own_key, pair_key, seed_check, sign_of
from sfumato.secure_sum.settings import SumSettings


def take_masks_off(
    settings: SumSettings,
    summed: np.ndarray,
    survivors: Collection[int],
    adverts: Mapping[int, Advert],
    shares: Mapping[int, Mapping[int, bytes]],
) -> np.ndarray:
    """The sum of the survivors' rows, from the sum of what they sent.

    `shares`: for each client that shared its secrets, what each holder gave of it: of its seed if it survived, of its mask
    key if not. A survivor's own mask is in the sum; so is the mask that it has in common with a neighbour that did not survive.
    """
    total = summed.copy()
    for client, held in shares.items():
        partners = settings.near(client) & frozenset(survivors)
        if not partners:  # none of its masks are in the sum
            continue
        secret = _given_back(settings, client, held)
        if client in survivors:
            if seed_check(settings, secret, client) != adverts[client].check:
                raise BadMessage(f"the shares of client {client}'s seed give another one.")
            add_mask(total, own_key(settings, secret, client), -1)
        else:
            if public_of(secret) != adverts[client].mask:
                raise BadMessage(f"the shares of client {client}'s mask key give another one.")
            for other in partners:
                common = pair_key(settings, secret, adverts[other].mask, client, other)
                add_mask(total, common, sign_of(client, other))
    return total


def _given_back(settings: SumSettings, client: int, held: Mapping[int, bytes]) -> bytes:
    """A secret from the first `threshold` shares."""
    if len(held) < settings.threshold:
        raise GaveUp(f"{len(held)} shares of client {client} are left, and its secret needs {settings.threshold}.")
    holders = sorted(held)[: settings.threshold]
    return shamir.secret_of({settings.places[holder] + 1: shamir.from_bytes(held[holder]) for holder in holders})
