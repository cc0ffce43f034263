"""What a channel must hold that is credited with hiding who sent a message."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
from scipy import stats

from sfumato.key import Key
from sfumato.pieces.protocol import Channel


def check_shuffler(channel: Channel, *, messages: int = 4, draws: int = 3000) -> None:
    """Every order of a few messages is equally likely, anew for every key; the same key gives the same one."""
    root, orders = Key.from_seed(29), list(permutations(range(messages)))
    found = Counter(_order(channel, messages, root.child("draw", number=draw)) for draw in range(draws))
    assert set(found) <= set(orders), f"{channel} gives something that is no order of {messages} messages"
    expected = draws / len(orders)
    distance = sum((found[order] - expected) ** 2 / expected for order in orders)
    assert stats.chi2.sf(distance, len(orders) - 1) > 1e-6, f"{channel} prefers some orders to others"
    assert _order(channel, messages, root) == _order(channel, messages, root), f"{channel} gives two orders for one key"
    many = channel.order(1000, root)
    assert many is not None and (np.sort(many) == np.arange(1000)).all(), f"{channel} loses messages"


def _order(channel: Channel, messages: int, key: Key) -> tuple[int, ...]:
    order = channel.order(messages, key)
    assert order is not None, f"{channel} passes messages on as they were sent"
    return tuple(int(place) for place in order)
