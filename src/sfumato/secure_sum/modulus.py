"""Sums modulo 2^bits, read as numbers from -2^(bits-1) on: how likely noise carries one past the end.

Noise has no largest value, so a sum can always wrap. That costs no privacy: what is sent and added is a function of the row with
its noise, and a guarantee holds for every function of what it holds for (post-processing). It costs correctness, with a chance
that is bounded here: a discrete Gaussian is sub-Gaussian with its own parameter (Canonne, Kamath, Steinke 2020), so a sum of n of
deviation s passes T with a chance of at most 2 exp(-T^2 / (2 n s^2)) in each coordinate.
"""

from __future__ import annotations

import math

import numpy as np

from sfumato.errors import BadValue

LARGEST_WRAP = 2.0**-40


def wrap_chance(clients: int, dimension: int, bits: int, largest: int, noise: float) -> float:
    """At most this chance that some coordinate of a sum of all rows wraps.

    >>> wrap_chance(50, 10**5, 32, largest=2**21, noise=2.0**18), wrap_chance(50, 10**5, 32, largest=2**26, noise=0.0)
    (0.0, 1.0)
    """
    if not 0.0 <= noise < math.inf:
        raise BadValue(f"noise={noise}: the standard deviation of a client's noise in steps, 0 if it adds none.")
    room = 2 ** (bits - 1) - clients * largest
    if room <= 0:
        return 1.0
    if noise == 0.0:
        return 0.0
    squared = (room / noise) ** 2 / (2.0 * clients)
    return min(1.0, 2.0 * dimension * math.exp(-squared))


def to_steps(row: np.ndarray, grid: float) -> np.ndarray:
    """A row of floats that lie on a grid, as whole numbers of its steps.

    >>> to_steps(np.array([0.5, -0.75]), 0.25)
    array([ 2, -3])
    """
    steps = row.astype(np.float64) / grid
    if not (np.abs(steps) < 2.0**62).all() or (steps != np.rint(steps)).any():
        raise BadValue(
            f"a row is not made of whole steps of {grid:g}. Put Grid() last in the client slot, before the noise."
        )
    return steps.astype(np.int64)


def from_steps(total: np.ndarray, grid: float) -> np.ndarray:
    """A sum in whole steps, as floats; exact below 2^53 steps."""
    found: np.ndarray = total.astype(np.float64) * grid
    return found
