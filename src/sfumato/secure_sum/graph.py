"""Who shares masks with whom, if not everybody with everybody: each with its nearest on a circle drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.key import Key


def circle(clients: Sequence[int], session: bytes) -> list[int]:
    """The clients in a random order, by sorting numbers of 128 bits (`degree` counts the chance that two are equal)."""
    words = Key.from_secret(session).child("neighbours").integers(2 * len(clients))
    order: list[int] = np.lexsort((words[: len(clients)], words[len(clients) :])).tolist()
    return [clients[place] for place in order]


def around(order: Sequence[int], neighbours: int) -> list[frozenset[int]]:
    """For each client, from the lowest on, itself and `neighbours` / 2 before and behind it on the circle.

    States: a circulant ("Harary") graph in which each has the same number of neighbours. When some are taken away, whoever
    follows next on the circle is still a neighbour unless neighbours / 2 in a row are missing in between; so the rest stays
    connected unless there are two such gaps at least.

    >>> [sorted(near) for near in around([2, 0, 1, 4, 3], 2)]
    [[0, 1, 2], [0, 1, 4], [0, 2, 3], [2, 3, 4], [1, 3, 4]]
    """
    steps = range(-(neighbours // 2), neighbours // 2 + 1)
    near = {
        client: frozenset(order[(position + step) % len(order)] for step in steps)
        for position, client in enumerate(order)
    }
    return [near[client] for client in sorted(near)]
