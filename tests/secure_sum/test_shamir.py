"""Shares: enough give the secret back, fewer fit every secret equally often."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.key import Key
from sfumato.secure_sum import BadMessage, shamir
from tests.secure_sum.laws import coefficients


@pytest.mark.parametrize(("prime", "threshold"), [(5, 2), (5, 3), (7, 3), (5, 4)])
def test_fewer_shares_than_the_threshold_tell_nothing(prime: int, threshold: int) -> None:
    """Exhaustively: for every secret and every set of places below the threshold, each tuple of values comes equally often."""
    for count in range(1, threshold):
        for places in itertools.combinations(range(1, prime), count):
            seen = {
                secret: Counter(
                    tuple(shamir.split([secret, *others], places, prime).values())
                    for others in itertools.product(range(prime), repeat=threshold - 1)
                )
                for secret in range(prime)
            }
            once = prime ** (threshold - 1 - count)
            for values in itertools.product(range(prime), repeat=count):
                assert [seen[secret][values] for secret in range(prime)] == [once] * prime


@pytest.mark.parametrize("threshold", [1, 2, 3, 5])
def test_any_so_many_shares_give_the_secret_back(threshold: int) -> None:
    secret = Key.from_seed(1).stream(32)
    shares = shamir.split(shamir.polynomial(secret, threshold, Key.from_seed(2)), range(1, 7))
    for places in itertools.combinations(range(1, 7), threshold):
        assert shamir.secret_of({place: shares[place] for place in places}) == secret
    if threshold > 1:
        for places in itertools.combinations(range(1, 7), threshold - 1):
            assert shamir.join({place: shares[place] for place in places}) != int.from_bytes(secret, "big")


@given(st.lists(st.integers(0, shamir.PRIME - 1), min_size=1, max_size=5), st.permutations(range(1, 8)))
def test_lagrange_is_gauss(polynomial: list[int], places: list[int]) -> None:
    shares = shamir.split(polynomial, places[: len(polynomial)])
    assert coefficients(shares, shamir.PRIME) == polynomial
    assert shamir.join(shares) == polynomial[0]


def test_the_modulus_is_prime() -> None:
    """Lucas and Lehmer: 2^p - 1 is prime if and only if it divides the p-2nd number of this sequence."""
    number = 4
    for _ in range(shamir.BITS - 2):
        number = (number * number - 2) % shamir.PRIME
    assert number == 0 and 2 ** (8 * shamir.SECRET) < shamir.PRIME < 2 ** (8 * shamir.SIZE)


def test_coefficients_reach_all_of_the_field() -> None:
    drawn = [shamir.polynomial(bytes(32), 2, Key.from_seed(seed))[1] for seed in range(200)]
    assert all(0 <= one < shamir.PRIME for one in drawn)
    assert 60 < sum(one >> 520 for one in drawn) < 140  # the highest bit
    assert 60 < sum(one & 1 for one in drawn) < 140


def test_a_share_at_zero_would_be_the_secret() -> None:
    with pytest.raises(ValueError, match="its secret is at 0"):
        shamir.split([1, 2], [0])


@pytest.mark.parametrize("share", [bytes(65), bytes(67), b"\xff" * 66, shamir.PRIME.to_bytes(66, "big")])
def test_what_is_no_number_of_the_field_is_refused(share: bytes) -> None:
    with pytest.raises(BadMessage, match="no number of the field"):
        shamir.from_bytes(share)


def test_shares_that_do_not_fit_are_refused() -> None:
    shares = shamir.split(shamir.polynomial(bytes(32), 3, Key.from_seed(2)), [1, 2, 3])
    with pytest.raises(BadMessage, match="do not fit"):
        shamir.secret_of({**shares, 2: shares[2] + 1})


def test_one_share_too_few_fits_every_secret_in_the_whole_field() -> None:
    """Whatever the secret, one more value makes the polynomial through it and the known shares: each is as possible."""
    known = dict(list(shamir.split(shamir.polynomial(bytes(32), 4, Key.from_seed(3)), range(1, 6)).items())[:3])
    for number in range(5):
        secret = int.from_bytes(Key.from_seed(number).stream(32), "big")
        assert shamir.join({**known, 9: _through({**known, 0: secret}, 9)}) == secret


def _through(points: dict[int, int], place: int) -> int:
    """The value at another place of the polynomial through these."""
    found = 0
    for one, value in points.items():
        for other in points.keys() - {one}:
            value = value * (place - other) * pow(one - other, -1, shamir.PRIME) % shamir.PRIME
        found += value
    return found % shamir.PRIME
