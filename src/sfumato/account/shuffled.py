"""Messages that a shuffler permuted: what one of them costs among its clones.

Feldman, McMillan and Talwar 2021 ("Hiding among the clones", Theorem 3.1): of `count` messages, each epsilon-private as a whole
under replace, every other one looks like the victim's with a chance of at least e^-epsilon, and then like either of its two
possible inputs with equal chance. So with C ~ Bin(count - 1, e^-epsilon), A ~ Bin(C, 1/2) and D ~ Bernoulli(e^epsilon / (1 +
e^epsilon)) the pair (A + D, C - A + 1 - D) against (A + 1 - D, C - A + D) dominates, also where messages depend on earlier ones.
The "stronger clones" of 2023 hold for some randomisers only (see their erratum) and are not used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, singledispatch

import numpy as np

from sfumato.account.event import (
    Event,
    LaplaceBallEvent,
    LaplaceEvent,
    PureEvent,
    Real,
    Relation,
    Secret,
    StaircaseEvent,
    register,
)
from sfumato.account.noises import ROUNDING, Array
from sfumato.account.pairs import Cells, cells
from sfumato.errors import BadValue

_REACH = 14.0  # standard deviations of a count that are looked at
_BEYOND = 4 * math.exp(-(_REACH**2) / 2)  # more than the chance of all that is not
_MOST_ATOMS = 2**21


@register
@dataclass(frozen=True)
class ShuffledEvent(Event):
    """One of `count` messages, the unit's own among them, was seen in an order drawn at random by somebody else.

    Every message is `epsilon`-private as a whole, under replace.
    """

    epsilon: Real
    count: int

    def __post_init__(self) -> None:
        if not (self.epsilon > 0.0 and math.isfinite(self.epsilon)):
            raise BadValue(f"ShuffledEvent epsilon={self.epsilon}: a positive, finite number is needed, e.g. 1.0.")
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise BadValue(f"ShuffledEvent count={self.count}: a whole number of at least 1 is needed.")

    @property
    def relation(self) -> Relation:
        """The only one that the clones are known for, so that nothing of another is added to it."""
        return Relation.REPLACE

    def words(self) -> str:
        if self.count == 1:
            return f"a {self.epsilon:.6g}-private message with no other to be shuffled among"
        return f"a {self.epsilon:.6g}-private message shuffled among {self.count:,}"

    @property
    def sampling(self) -> str:
        return f"the order of {self.count:,} messages"

    @property
    def secret(self) -> Secret | None:
        return Secret.ORDER if self.count > 1 else None


@singledispatch
def pure_epsilon(event: Event) -> float | None:
    """The epsilon at delta 0 of one release, if it has one: what a message needs to be hidden among others by a shuffler.

    An event that is pure-epsilon private registers it here.
    """
    return None


@pure_epsilon.register
def _(event: LaplaceEvent) -> float | None:
    return math.nextafter(1 / event.ratio, math.inf)


@pure_epsilon.register
def _(event: LaplaceBallEvent) -> float | None:
    """An L1 distance is at most the square root of the dimension times the L2 distance."""
    return math.sqrt(event.dimension) / event.ratio * (1 + 4 * ROUNDING)


@pure_epsilon.register(PureEvent)
@pure_epsilon.register(StaircaseEvent)
def _(event: PureEvent | StaircaseEvent) -> float | None:
    return event.epsilon


@dataclass(frozen=True)
class Clones:
    """The positive half of the pair: it is its own reverse, so `EitherWay` gives the rest.

    Given C = c, and with T = tanh(epsilon / 2), the first count is a with P's chance over Q's equal to
    (1 + T x) / (1 - T x), where x = (2 a - c - 1) / (c + 1). Proof: Bin(c, 1/2) has b(a - 1) : b(a) = a : c + 1 - a, which P mixes
    as e^epsilon : 1 and Q as 1 : e^epsilon. So the loss 2 artanh(T x) rises with a: what lies beyond an epsilon is a tail of a for
    every c. And a -> c + 1 - a swaps P with Q. C and a are within `_REACH` deviations of their middles but for 3 e^-98, by
    Chernoff and Hoeffding, so there are O(count) atoms in all.

    Nothing is lost: whoever is told that a count was beyond that reach, and then D itself, knows more; that is the atom of c = 0.
    Fewer clones are never better for privacy (adding fair coins gives more), so what lies above the reach of C may be shared
    out to the others, and where there are too many atoms C is rounded down, by less than one part in ten thousand.
    """

    epsilon: float
    count: int
    symmetric: bool = False

    def losses(self, spacing: float) -> Array:
        """From 0 to epsilon: evenly to eight standard deviations of the loss, then in proportion."""
        clones = (self.count - 1) * math.exp(-self.epsilon)
        unit = 2 * math.tanh(self.epsilon / 2) / math.sqrt(clones + 1)
        near = min(8 * unit, self.epsilon)
        even = np.linspace(0.0, near, math.ceil(near / unit / spacing) + 1)
        far = near * np.exp(np.arange(0.0, math.log(self.epsilon / near), spacing / 8))[1:]
        return np.concatenate([even, far, [self.epsilon * (1 + 1e-6)]])

    def cells(self, cuts: Array) -> Cells:
        losses, p, q, doubt = _atoms(self.epsilon, self.count)
        inside = np.searchsorted(losses, cuts, side="right")
        starts, ends = np.append(0, inside), np.append(inside, len(losses))
        held = ends > starts
        sums = np.zeros((2, len(starts)))
        if held.any():
            sums[:, held] = [np.add.reduceat(part, starts[held]) for part in (p, q)]
        with np.errstate(divide="ignore"):
            log_p, log_q = np.log(sums)
        return cells(log_p, log_q, doubt + ROUNDING * (ends - starts))


@lru_cache(maxsize=4)
def _atoms(epsilon: float, count: int) -> tuple[Array, Array, Array, float]:
    """The positive losses in order, their chances under P and under Q, and how far rounding can have moved a chance."""
    clones, weights = _clones(math.exp(-epsilon), count - 1)
    width = int(min(_REACH * math.sqrt(clones[-1]) / 2 + 1, clones[-1] - clones[-1] // 2)) + 1
    first = (clones + 1) // 2  # the larger half of the coins, from the middle on
    place = first[:, None] + np.arange(width)
    rise = np.maximum(clones[:, None] - place[:, :-1], 0) / (place[:, :-1] + 1)
    coins = np.cumprod(np.concatenate([np.ones((len(clones), 1)), rise], axis=1), axis=1)
    both = 2 * coins.sum(axis=1) - (clones % 2 == 0)  # the middle of an even number is there once
    coins = np.append(coins, np.zeros((len(clones), 1)), axis=1) * (weights / both)[:, None]
    above, below = coins[:, :-1], coins[:, 1:]  # b(a - 1) and b(a)
    x = (2 * place - clones[:, None] + 1) / (clones[:, None] + 1)
    loss = np.where(
        below > 0, np.minimum(2 * np.arctanh(np.minimum(math.tanh(epsilon / 2) * x, 1 - 1e-16)), epsilon), epsilon
    )
    kept = above > 0
    less = 1 / (1 + math.exp(epsilon))
    p, q = ((1 - less) * above + less * below)[kept], (less * above + (1 - less) * below)[kept]
    order = np.argsort(loss[kept], kind="stable")
    return loss[kept][order], p[order], q[order], (8 * width + 64) * ROUNDING


def _clones(chance: float, others: int) -> tuple[np.ndarray, Array]:
    """Numbers of clones, rounded down, and their chances. What lies above them is shared out to all, what lies below is at 0."""
    mean = others * chance
    low = max(
        0, math.floor(mean - _REACH * math.sqrt(mean))
    )  # P(C < low) < e^-98, by Chernoff's bound for a lower tail
    high = min(others, math.ceil(mean + _REACH * math.sqrt(mean)) + 1)
    mode = min(max(int((others + 1) * chance), low), high)
    odds = chance / (1 - chance) if chance < 1 else math.inf
    up = np.arange(mode, high)
    down = np.arange(mode, low, -1)
    above = np.cumprod((others - up) / (up + 1) * odds)
    under = np.cumprod(down / (others - down + 1) / odds)
    chances = np.concatenate([under[::-1], [1.0], above])
    group = max(1, math.ceil((high - low + 1) * (_REACH * math.sqrt(high) / 2 + 2) / _MOST_ATOMS))
    starts = np.arange(0, len(chances), group)
    numbers, weights = low + starts, np.add.reduceat(chances, starts) / chances.sum()
    beyond = _BEYOND if low > 0 or high < others or _REACH * math.sqrt(high) < high else 0.0
    if not beyond or numbers[0] == 0:
        weights[0] += beyond
        return numbers, weights
    return np.append(0, numbers), np.append(beyond, weights)
