"""Draws whose law is exactly the one that is accounted: no rounding of a float decides what comes out.

A uniform number is an endless string of bits, of which 64 are drawn first. Float64 computes what it would give, and decides
only where a bound on its own error and on the bits not drawn leaves no doubt. What is in doubt (a few in ten million) is
settled with more bits and interval arithmetic of rising precision. So every result is a function of true uniform numbers
alone: no tail is cut, no number has holes around it, and every machine and library gives the same.

The bound takes log, exp, cos and sin as within 16 units in the last place; libraries promise 4 or less. With w a word and
U = (w + V) / 2^64 the number that begins with it, V in [0, 1):

  u = fl(w / 2^64)              one rounding, and V:        |u - U| <= 2^-53 U + 2^-64
  l = fl(-ln u)                 |ln u - ln U| <= |u - U| / min(u, U):  |l + ln U| <= 2^-52 + 2^-63 / u + 2^-48 l
  r = fl(sqrt(2 l))             |r - R| <= |r^2 - R^2| / r:    <= (2^-51 + 2^-62 / u) / r + 2^-48 r
  c = fl(cos(2 pi w / 2^64))    four roundings of an angle below 2 pi, V, and one cosine: within 2^-47
  x = fl(stddev r c)            |x - X| <= stddev (|r - R| + 2^-47 R + 2^-51 r), with room to spare at most
                                stddev ((2^-50 + 2^-61 / u) / r + 2^-45 r)

A word of 0 says nothing of ln U, and u = 1 nothing of R: there the bound is infinite, or no number, and nothing is decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from sfumato.errors import BadValue
from sfumato.key import Key

_WORD = 64
LARGEST_STDDEV = 2.0**40  # float64 holds every whole number up to 2^13 of them; farther out lies a chance of e^(-2^25)


def rounded_gaussian(count: int, stddev: float, key: Key) -> np.ndarray:
    """`count` numbers N(0, stddev^2), each rounded to the nearest whole number: Box and Muller's, two from two words.

    >>> rounded_gaussian(6, 3.0, Key.from_seed(0))
    array([ 1., -5., -3.,  0., -1.,  2.])
    """
    _check(stddev)
    pairs = (count + 1) // 2
    both = np.empty((2, pairs))
    start = 0
    for block in key.blocks(16 * pairs):
        words = np.frombuffer(block, "<u8").reshape(2, -1)
        size = words.shape[1]
        with np.errstate(divide="ignore", invalid="ignore"):  # what is not finite is not decided by float64
            both[:, start : start + size] = _turned(words[0], words[1], stddev, key, start)
        start += size
    return both.reshape(-1)[:count]


def _turned(radii: np.ndarray, angles: np.ndarray, stddev: float, key: Key, first: int) -> tuple[np.ndarray, ...]:
    """The rounded cosine and sine of each pair of words; `first` is the number of the first pair."""
    uniform, turn = _begun(radii), _begun(angles)
    length = np.sqrt(0.0 - 2.0 * np.log(uniform))  # of u = 1 it is 0 and not -0, whose bound would be minus infinity
    error = (2.0**-50 + 2.0**-61 / uniform) / length + 2.0**-45 * length
    error = error * stddev + 2.0**-52
    turn *= 2.0 * math.pi
    length *= stddev
    found = []
    for wave in ("cos", "sin"):
        value = getattr(np, wave)(turn)
        value *= length
        value += 0.5
        found.append(_floors(value, error, partial(_settled_turn, wave, radii, angles, stddev, key, first)))
    return tuple(found)


def _settled_turn(
    wave: str, radii: np.ndarray, angles: np.ndarray, stddev: float, key: Key, first: int, place: int
) -> int:
    """One rounded cosine or sine; both of a pair draw the same further bits."""
    words = int(radii[place]), int(angles[place])
    return _settled(
        words,
        key.child("more", pair=first + place),
        lambda iv, u, turn: iv.mpf(stddev) * iv.sqrt(-2 * iv.log(u)) * getattr(iv, wave)(2 * iv.pi * turn) + 0.5,
    )


def discrete_gaussian(count: int, stddev: float, key: Key) -> np.ndarray:
    """`count` whole numbers x with chance proportional to exp(-x^2 / (2 stddev^2)).

    By rejection (Canonne, Kamath, Steinke 2020, Algorithm 3): y with chance proportional to e^{-|y|/t}, t = floor(stddev) + 1, is
    kept with chance exp(-(|y| - stddev^2/t)^2 / (2 stddev^2)). |y| = floor(-t ln U). That exponent and its exponential are
    within 2^-46 (1 + exponent) of the truth, relative to the exponential.

    >>> discrete_gaussian(6, 3.0, Key.from_seed(0))
    array([ 0.,  4.,  5., -7.,  0.,  5.])
    """
    _check(stddev)
    wide = math.floor(stddev) + 1
    found = np.empty(count)
    have = attempt = 0
    while have < count:
        own = key.child("try", number=attempt)
        tried = int((count - have) * 1.36) + 64
        start = 0
        for block in own.blocks(16 * tried):
            words = np.frombuffer(block, "<u8").reshape(-1, 2)
            sizes = _log_floors(words[:, 0], float(wide), lambda iv: wide, own.child("size", first=start))
            negative = (words[:, 1] & np.uint64(1)).astype(bool)
            kept = _kept(words[:, 1], sizes, stddev, wide, own.child("keep", first=start))
            kept &= ~(negative & (sizes == 0))
            chosen = np.where(negative, -sizes, sizes)[kept][: count - have]
            found[have : have + len(chosen)] = chosen
            have, start = have + len(chosen), start + len(words)
            if have == count:
                break
        attempt += 1
    return found


def gaps(count: int, rate: float, key: Key) -> np.ndarray:
    """How many are passed over before the next is drawn, `count` times, if each is drawn with chance `rate` exactly.

    floor(ln U / ln(1 - rate)): at least k with chance (1 - rate)^k.

    >>> gaps(5, 0.5, Key.from_seed(0))
    array([0., 1., 1., 0., 0.])
    """
    scale = -1.0 / math.log1p(-rate)
    return _log_floors(key.integers(count), scale, lambda iv: -1 / iv.log(1 - iv.mpf(rate)), key)


def below(bound: int, count: int, key: Key) -> np.ndarray:
    """`count` whole numbers below `bound`, each as likely as any other: a word of the last, incomplete turn is left out.

    >>> below(10, 4, Key.from_seed(0))
    array([7, 3, 8, 8])
    """
    whole = 2**_WORD - 2**_WORD % bound
    words = key.integers(count)
    attempt = 0
    while len(words := words[words < whole] if whole < 2**_WORD else words) < count:
        words = np.concatenate([words, key.child("instead", number=attempt).integers(count - len(words))])
        attempt += 1
    return (words % np.uint64(bound)).astype(np.int64)


def _check(stddev: float) -> None:
    if not 0.0 < stddev <= LARGEST_STDDEV:
        raise BadValue(
            f"exact noise of standard deviation {stddev:g} steps: above 0 and at most 2^40. Use fewer bits, or less noise."
        )


def _begun(words: np.ndarray) -> np.ndarray:
    """The least of the numbers that begin with these 64 bits."""
    found: np.ndarray = words.astype(np.float64)
    found *= 2.0**-_WORD
    return found


def _floors(value: np.ndarray, error: np.ndarray, settle: Callable[[int], int]) -> np.ndarray:
    """The floors of numbers that are within `error` of `value`; where that leaves two, `settle` says which."""
    whole: np.ndarray = np.floor(value)
    value -= whole
    sure = value > error
    sure &= value < 1.0 - error
    if not sure.all():
        for place in np.flatnonzero(~sure):
            whole[place] = settle(int(place))
    return whole


def _log_floors(words: np.ndarray, scale: float, exact_scale: Callable[[Any], Any], key: Key) -> np.ndarray:
    """floor(-scale ln U), up to 2^62; `scale` may be off by 16 units in the last place."""
    with np.errstate(divide="ignore", invalid="ignore"):  # what is not finite is not decided by float64
        uniform = _begun(words)
        value = np.log(uniform)
        value *= -scale
        error = 2.0**-47 * value
        error += scale * (2.0**-50 + 2.0**-61 / uniform) + 2.0**-52
        return _floors(value, error, partial(_settled_log, words, exact_scale, key))


def _settled_log(words: np.ndarray, exact_scale: Callable[[Any], Any], key: Key, place: int) -> int:
    more = key.child("more", place=place)
    return min(2**62, _settled((int(words[place]),), more, lambda iv, u: -exact_scale(iv) * iv.log(u)))


def _kept(words: np.ndarray, sizes: np.ndarray, stddev: float, wide: int, key: Key) -> np.ndarray:
    """Whether a uniform number, of which the upper 63 bits of a word are drawn, is below the chance to keep."""
    uniform = _begun(words)  # with a bit more, which is the sign's and within the doubt
    exponent = sizes - stddev * stddev / wide
    exponent *= exponent
    exponent *= 0.5 / (stddev * stddev)
    chance = np.exp(-exponent)
    kept = np.asarray(uniform < chance)
    exponent += 1.0
    exponent *= 2.0**-46
    for place in map(int, np.flatnonzero(np.abs(uniform - chance) <= exponent * chance + 2.0**-62)):
        kept[place] = _settled_keep(int(words[place]), int(sizes[place]), stddev, wide, key.child("more", place=place))
    return kept


def _settled_keep(word: int, size: int, stddev: float, wide: int, key: Key) -> bool:
    """Whether the number that begins with the upper 63 bits of a word is below exp(-(size - stddev^2/wide)^2 / (2 stddev^2))."""

    return (
        _settled(
            (word >> 1,),
            key,
            lambda iv, u: u - iv.exp(-((size - iv.mpf(stddev) ** 2 / wide) ** 2) / (2 * iv.mpf(stddev) ** 2)),
            drawn=_WORD - 1,
        )
        < 0
    )


def _settled(words: Sequence[int], key: Key, exact: Callable[..., Any], drawn: int = _WORD) -> int:
    """The floor of `exact`, an interval function of uniform numbers that begin with `words`: bits are drawn until it is plain."""
    from mpmath.ctx_iv import MPIntervalContext
    from mpmath.libmp import round_floor, to_int

    iv, numbers, bits, further = MPIntervalContext(), list(words), drawn, 0
    while True:
        iv.prec = bits + _WORD
        if all(numbers):  # a logarithm of what may be 0 has no end
            found = exact(iv, *(iv.mpf([number, number + 1]) / 2**bits for number in numbers))
            try:
                low, high = (to_int(end, round_floor) for end in found._mpi_)
            except ValueError:  # an end that is not finite yet
                low, high = 0, 1
            if low == high:
                return int(low)
        more = key.child("bits", number=further).integers(len(numbers))
        numbers = [number << _WORD | int(word) for number, word in zip(numbers, more, strict=True)]
        bits, further = bits + _WORD, further + 1
