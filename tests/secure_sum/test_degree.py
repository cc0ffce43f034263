"""How many neighbours are enough: tails against enumeration, and bounds against every possible circle."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from scipy import stats

from sfumato.errors import BadValue
from sfumato.secure_sum import enough
from sfumato.secure_sum.degree import LARGEST_EXPOSURE, LARGEST_GIVING_UP, at_least, exposure, fewer, giving_up
from sfumato.secure_sum.graph import around, circle


@pytest.mark.parametrize(("population", "marked", "drawn"), [(6, 2, 3), (7, 5, 4), (5, 0, 2), (5, 5, 2)])
def test_tails_are_those_of_all_draws(population: int, marked: int, drawn: int) -> None:
    draws = [sum(one < marked for one in draw) for draw in itertools.combinations(range(population), drawn)]
    for bound in range(drawn + 2):
        assert at_least(bound, population, marked, drawn) == Fraction(sum(one >= bound for one in draws), len(draws))
        assert fewer(bound, population, marked, drawn) == 1 - at_least(bound, population, marked, drawn)


def test_tails_are_those_of_scipy_where_it_has_digits() -> None:
    law = stats.hypergeom(999, 50, 36)
    assert float(at_least(8, 999, 50, 36)) == pytest.approx(law.sf(7), rel=1e-9)


def parts(near: list[frozenset[int]], left: frozenset[int]) -> int:
    """In how many parts those who are left fall: the slow way."""
    count, todo = 0, set(left)
    while todo:
        count += 1
        reached = [todo.pop()]
        while reached:
            found = near[reached.pop()] & todo
            todo -= found
            reached += found
    return count


@pytest.mark.parametrize(
    ("clients", "neighbours", "colluding", "smallest", "threshold"),
    [(8, 2, 2, 6, 2), (8, 4, 2, 6, 2), (9, 4, 3, 8, 3), (9, 2, 1, 8, 2), (10, 4, 3, 9, 4), (10, 4, 0, 5, 1)],
)
def test_the_exposure_bounds_what_happens_over_all_circles(
    clients: int, neighbours: int, colluding: int, smallest: int, threshold: int
) -> None:
    """Each choice of who colludes and who is missing is as likely on one circle as each circle is for one choice."""
    near = around(range(clients), neighbours)
    everybody = frozenset(range(clients))
    bad = total = given_up = 0
    for colluders in map(frozenset, itertools.combinations(range(clients), colluding)):
        known = any(len(near[one] & colluders) >= threshold for one in everybody - colluders)
        for missing in map(frozenset, itertools.combinations(range(clients), clients - smallest)):
            total += 1
            bad += known or parts(near, everybody - colluders - missing) > 1
            given_up += any(len(near[one] - missing) < threshold for one in everybody)
    assert bad <= total * exposure(clients, colluding, smallest, neighbours, threshold)
    assert given_up <= total * giving_up(clients, smallest, neighbours, threshold)


def test_the_exposure_is_not_idle() -> None:
    """It is below 1 where something is proven, and what it bounds does happen."""
    assert (
        0 < exposure(9, 1, 8, 4, 2) < Fraction(1, 1000)
    )  # nobody else has two colluders of one, four cannot be missing
    assert exposure(9, 3, 8, 4, 3) > Fraction(1, 20)


@pytest.mark.parametrize(
    ("clients", "colluding", "smallest"), [(101, 5, 80), (500, 25, 450), (1000, 10, 950), (10_000, 500, 9000)]
)
def test_enough_is_the_fewest(clients: int, colluding: int, smallest: int) -> None:
    neighbours, threshold = enough(clients, colluding, smallest)
    assert neighbours < clients // 4 and neighbours % 2 == 0
    assert exposure(clients, colluding, smallest, neighbours, threshold) <= LARGEST_EXPOSURE
    assert exposure(clients, colluding, smallest, neighbours, threshold - 1) > LARGEST_EXPOSURE
    assert giving_up(clients, smallest, neighbours, threshold) <= LARGEST_GIVING_UP
    fewer_still = neighbours - 2
    assert all(
        exposure(clients, colluding, smallest, fewer_still, one) > LARGEST_EXPOSURE
        or giving_up(clients, smallest, fewer_still, one) > LARGEST_GIVING_UP
        for one in range(1, fewer_still + 1)
    )


def test_a_small_cohort_knows_everybody() -> None:
    for clients in (2, 3, 50, 100):
        neighbours, threshold = enough(clients, 0, clients)
        assert neighbours == clients - 1 and exposure(clients, 0, clients, neighbours, threshold) == 0


def test_a_cohort_in_which_most_may_collude_is_refused() -> None:
    with pytest.raises(BadValue, match="none of them need be honest"):
        enough(200, 150, 150)


def test_circles_are_drawn_evenly() -> None:
    """Who stands next to client 0 of 5: each pair of others equally often."""
    pairs = list(itertools.combinations(range(1, 5), 2))
    drawn = [around(circle(range(5), number.to_bytes(32, "big")), 2)[0] for number in range(3000)]
    counts = [sum(near == {0, *pair} for near in drawn) for pair in pairs]
    assert sum(counts) == 3000 and stats.chisquare(counts).pvalue > 1e-4


def test_neighbours_are_mutual_and_of_one_number() -> None:
    order = circle(range(40, 140), bytes(32))
    near = dict(zip(range(40, 140), around(order, 8), strict=True))
    assert sorted(order) == list(range(40, 140)) and order != sorted(order)
    for client, others in near.items():
        assert len(others) == 9 and client in others
        assert all(client in near[other] for other in others)


def test_ties_are_counted() -> None:
    assert exposure(1000, 0, 1000, 4, 2) == Fraction(math.comb(1000, 2), 2**128)
