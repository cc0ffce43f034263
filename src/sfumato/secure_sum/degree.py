"""How many neighbours are enough, computed: exact tails of the hypergeometric law, as fractions.

n clients stand on a circle in an order drawn at random, and each is a neighbour of the k/2 before and behind it. At most c collude
with the server; at most n - m send no row, since a sum of fewer than m rows is given up. Who these are does not depend on the order
(they are fixed before it is drawn). Bell et al. (2020) ask for three events; this is how likely each fails.

1. *Some honest client has `threshold` colluding neighbours*, who together know its secrets. The neighbours of one client are k
   of the n - 1 others, each set as likely as any other, so their number of colluders is hypergeometric; n - c clients.
2. *Honest clients whose rows are in the sum are not connected by neighbours among them.* Then the server learns the sum of each
   part. It needs two gaps of k/2 places in a row on the circle, apart from each other, with nobody honest and present: fewer than
   n^2/2 pairs of gaps, and the chance that given k places are all among the c + n - m is again hypergeometric. (Colluders who
   send no row, and fewer drop-outs, only make gaps rarer.)
3. *Too few neighbours of some client are left to give its secret back*: the round is given up, and nothing more is learnt.

1 and 2 make up the `exposure`: with this chance, in a round, the server may learn more than the sum. It depends on nobody's data,
so a guarantee that holds otherwise with delta holds with delta plus the exposure of each round.
"""

from __future__ import annotations

import math
from fractions import Fraction

from sfumato.errors import BadValue

LARGEST_EXPOSURE = Fraction(1, 2**40)  # of a round, for which settings are accepted
SMALL = 100  # clients, up to which all are neighbours
MOST_NEIGHBOURS = 1000  # short of all: beyond, the chances take long to compute
LARGEST_GIVING_UP = Fraction(1, 2**20)  # of a round, when the number of neighbours is chosen


def at_least(fewest: int, population: int, marked: int, drawn: int) -> Fraction:
    """The chance that, of so many drawn without replacement, at least `fewest` are marked.

    >>> at_least(2, population=4, marked=2, drawn=2)
    Fraction(1, 6)
    """
    return _chance(population, marked, drawn, range(max(fewest, 0), drawn + 1))


def fewer(than: int, population: int, marked: int, drawn: int) -> Fraction:
    """The chance that, of so many drawn without replacement, fewer are marked."""
    return _chance(population, marked, drawn, range(min(than, drawn + 1)))


def _chance(population: int, marked: int, drawn: int, counts: range) -> Fraction:
    ways = sum(math.comb(marked, count) * math.comb(population - marked, drawn - count) for count in counts)
    return Fraction(ways, math.comb(population, drawn))


def exposure(clients: int, colluding: int, smallest: int, neighbours: int, threshold: int) -> Fraction:
    """At most this chance, in a round, that more than the sum is learnt. Everybody with everybody: none."""
    if neighbours == clients - 1:
        return Fraction(0) if colluding < threshold else Fraction(1)
    known = (clients - colluding) * at_least(threshold, clients - 1, colluding, neighbours)
    missing = colluding + clients - smallest
    parted = math.comb(clients, 2) * at_least(neighbours, clients, missing, neighbours)
    return min(Fraction(1), known + parted + _ties(clients))


def _ties(clients: int) -> Fraction:
    """The chance that two of the numbers by which the circle is sorted are equal; otherwise every order is as likely."""
    return Fraction(math.comb(clients, 2), 2**128)


def giving_up(clients: int, smallest: int, neighbours: int, threshold: int) -> Fraction:
    """At most this chance that a secret cannot be given back, when all but `smallest` have dropped out by the end."""
    if neighbours == clients - 1:
        return Fraction(0) if threshold <= smallest else Fraction(1)
    return min(Fraction(1), clients * fewer(threshold, clients - 1, min(smallest, clients - 1), neighbours))


def enough(clients: int, colluding: int, smallest: int) -> tuple[int, int]:
    """The fewest neighbours, and the smallest threshold for them, that keep both chances small; or all others.

    A small cohort is not worth a chance: there everybody is a neighbour of everybody.

    >>> enough(50, colluding=2, smallest=40)
    (49, 21)
    >>> enough(5000, colluding=250, smallest=4500)
    (40, 21)
    """
    if not 0 <= colluding < smallest <= clients:
        raise BadValue(
            f"{colluding} of {clients} clients may collude, and a sum has at least {smallest} rows: none of them need be honest. "
            "Ask for more rows in a sum than clients that may collude."
        )
    for neighbours in range(2, min(clients - 1, MOST_NEIGHBOURS + 1) if clients > SMALL else 0, 2):
        threshold = _smallest_threshold(clients, colluding, smallest, neighbours)
        if threshold and giving_up(clients, smallest, neighbours, threshold) <= LARGEST_GIVING_UP:
            return neighbours, threshold
    return clients - 1, (colluding + smallest + 1) // 2


def _smallest_threshold(clients: int, colluding: int, smallest: int, neighbours: int) -> int | None:
    if exposure(clients, colluding, smallest, neighbours, neighbours) > LARGEST_EXPOSURE:
        return None
    low, high = 1, neighbours  # the exposure falls with the threshold
    while low < high:
        middle = (low + high) // 2
        if exposure(clients, colluding, smallest, neighbours, middle) <= LARGEST_EXPOSURE:
            high = middle
        else:
            low = middle + 1
    return low
