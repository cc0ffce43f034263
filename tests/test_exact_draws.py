"""Exact draws: the bound on float64's error holds, what it leaves open is settled, and the law is the stated one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from sfumato import exact_draws
from sfumato.errors import BadValue
from sfumato.exact_draws import below, discrete_gaussian, gaps, rounded_gaussian
from sfumato.key import Key

LAST = 2**64 - 1
EXTREMES = [
    0,
    1,
    2,
    3,
    2**11,
    2**32,
    2**53 + 1,
    2**61,
    2**62,
    2**62 + 1,
    2**63 - 1,
    2**63,
    LAST - 2**12,
    LAST - 1,
    LAST,
]
Decided = list[tuple[np.ndarray, np.ndarray]]


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Decided:
    """The values and error bounds from which floors were taken."""
    found: Decided = []
    true = exact_draws._floors

    def spy(value: np.ndarray, error: np.ndarray, settle: Callable[[int], int]) -> np.ndarray:
        found.append((value.copy(), error.copy()))
        return true(value, error, settle)

    monkeypatch.setattr(exact_draws, "_floors", spy)
    return found


def within(value: np.ndarray, error: np.ndarray, truths: list[list[Any]]) -> float:
    """Assert that every truth is within the bound; the largest share of it that was needed."""
    worst = 0.0
    for one, bound, true in zip(value, error, truths, strict=True):
        for each in true:
            if bound < np.inf:  # else nothing is decided
                worst = max(worst, float(abs(each - mpmath.mpf(float(one))) / mpmath.mpf(float(bound))))
    assert worst <= 1.0
    return worst


@pytest.mark.parametrize("stddev", [0.3, 50.0, 2.0**21])
def test_the_bound_of_a_gaussian_holds_at_both_ends_of_every_word(stddev: float, decided: Decided) -> None:
    """The number begins with the word: beyond that it may be anything, so both ends are tried, at 60 digits."""
    random = Key.from_seed(1).integers(600)
    radii = np.array([*EXTREMES, *[5] * len(EXTREMES), *random[:300]], np.uint64)
    angles = np.array([*EXTREMES[::-1], *EXTREMES, *random[300:]], np.uint64)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact_draws._turned(radii, angles, stddev, Key.from_seed(2), 0)
    with mpmath.workdps(60):
        for (value, error), wave in zip(decided, (mpmath.cos, mpmath.sin), strict=True):
            truths = []
            for radius, angle in zip(radii.tolist(), angles.tolist(), strict=True):
                ends = [
                    (mpmath.mpf(radius + one) / 2**64, 2 * mpmath.pi * (angle + two) / 2**64)
                    for one in (mpmath.mpf(10) ** -30, 1)
                    for two in (0, 1)
                ]
                truths.append([stddev * mpmath.sqrt(-2 * mpmath.log(u)) * wave(turn) + 0.5 for u, turn in ends])
            assert within(value, error, truths) > 1e-4  # it is a bound, and not one without end
            assert not (error[[0, len(EXTREMES) - 1]] < np.inf).any()  # of a word of 0, and of one that rounds to 1
            assert np.nanmedian(error) < 2.0**-42 * max(stddev, 1.0)


@pytest.mark.parametrize("rate", [1e-9, 0.05, 0.5, 0.999])
def test_the_bound_of_a_gap_holds(rate: float, decided: Decided) -> None:
    words = np.array([*EXTREMES, *Key.from_seed(1).integers(300)], np.uint64)
    exact_draws._log_floors(words, -1.0 / math.log1p(-rate), lambda iv: -1 / iv.log(1 - iv.mpf(rate)), Key.from_seed(2))
    ((value, error),) = decided
    with mpmath.workdps(60):
        scale = mpmath.log(1 - mpmath.mpf(rate))
        ends = [[mpmath.log(mpmath.mpf(word + more) / 2**64) / scale for more in (1e-30, 1)] for word in words.tolist()]
        within(value, error, ends)
    assert not error[0] < np.inf


def settle_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing to float64."""
    true = exact_draws._floors

    def never_sure(value: np.ndarray, error: np.ndarray, settle: Callable[[int], int]) -> np.ndarray:
        return true(value, np.full_like(error, np.inf), settle)

    monkeypatch.setattr(exact_draws, "_floors", never_sure)


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: rounded_gaussian(301, 40.0, key),
        lambda key: rounded_gaussian(100, 0.4, key),
        lambda key: discrete_gaussian(200, 40.0, key),
        lambda key: gaps(300, 0.05, key),
    ],
    ids=["rounded", "narrow", "discrete", "gaps"],
)
def test_interval_arithmetic_alone_gives_the_same(draw: Callable[[Key], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fast = draw(Key.from_seed(7))
    settle_all(monkeypatch)
    assert np.array_equal(fast, draw(Key.from_seed(7)))


def test_what_to_keep_is_decided_the_same_by_interval_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.array([*EXTREMES, *Key.from_seed(3).integers(150)], np.uint64)
    sizes = np.arange(len(words), dtype=float) % 90
    kept = exact_draws._kept(words, sizes, 20.0, 21, Key.from_seed(4))
    for word, size, one in zip(words.tolist(), sizes, kept, strict=True):
        with mpmath.workdps(60):
            chance = mpmath.exp(-((size - mpmath.mpf(400) / 21) ** 2) / 800)
            least = mpmath.mpf(word >> 1) / 2**63
            if not least <= chance < least + mpmath.mpf(2) ** -63:  # else it depends on the bits to come
                assert one == (least < chance)


def test_a_word_of_zero_and_one_that_rounds_to_one_are_settled_with_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    true = exact_draws._settled

    def counted(*given: Any, **words: Any) -> int:
        asked.append(1)
        return true(*given, **words)

    monkeypatch.setattr(exact_draws, "_settled", counted)
    edges = np.array([0, LAST, 2**62], np.uint64)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines, sines = exact_draws._turned(edges, np.array([2**60] * 3, np.uint64), 1.0, Key.from_seed(0), 0)
    assert len(asked) == 4  # both of the first two pairs
    assert cosines[0] >= 9 * math.cos(math.pi / 8) - 1  # beyond the farthest that 64 bits reach
    assert cosines[1] == sines[1] == 0.0


def chances_of_rounded(stddev: float, most: int) -> np.ndarray:
    edges = (np.arange(-most, most + 2) - 0.5) / stddev
    return np.diff(stats.norm.cdf(edges))


def chances_of_discrete(stddev: float, most: int) -> np.ndarray:
    with mpmath.workdps(40):
        weights = [
            mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * mpmath.mpf(stddev) ** 2)) for x in range(-60 * most, 60 * most + 1)
        ]
        total = mpmath.fsum(weights)
        return np.array([float(weights[x + 60 * most] / total) for x in range(-most, most + 1)])


def p_value(drawn: np.ndarray, chances: np.ndarray) -> float:
    """Of a chi-square test against the chances of -most to most and of what lies beyond."""
    most = len(chances) // 2
    inside = drawn[np.abs(drawn) <= most].astype(int) + most
    counts = np.append(np.bincount(inside, minlength=len(chances)), len(drawn) - len(inside))
    expected = np.append(chances, 1.0 - chances.sum()) * len(drawn)
    common = (expected > 5) | (counts > 20)
    return float(stats.chi2.sf(((counts - expected)[common] ** 2 / expected[common]).sum(), common.sum() - 1))


CASES = [(rounded_gaussian, chances_of_rounded), (discrete_gaussian, chances_of_discrete)]
Draw, Chances = Callable[[int, float, Key], np.ndarray], Callable[[float, int], np.ndarray]


@pytest.mark.parametrize("stddev", [0.3, 0.8, 3.0, 20.0])
@pytest.mark.parametrize(("draw", "chances"), CASES, ids=["rounded", "discrete"])
def test_the_law_is_the_exact_one_and_other_scales_are_rejected(draw: Draw, chances: Chances, stddev: float) -> None:
    drawn = draw(200_000, stddev, Key.from_seed(5))
    assert drawn.dtype == np.float64 and (drawn == np.round(drawn)).all()
    most = math.ceil(3 * stddev)
    assert p_value(drawn, chances(stddev, most)) > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert p_value(drawn, chances(stddev * wrong, most)) < 1e-6
    half = len(drawn) // 2
    assert abs(np.corrcoef(drawn[:half], drawn[half:])[0, 1]) < 6 / math.sqrt(half)


def test_the_two_laws_are_told_apart_where_they_differ() -> None:
    drawn = discrete_gaussian(200_000, 0.5, Key.from_seed(5))
    assert p_value(drawn, chances_of_rounded(0.5, 2)) < 1e-6


def keeps_minus_zero(count: int, stddev: float, key: Key) -> np.ndarray:
    """Size and sign drawn apart, and minus zero not rejected: zero comes twice as often."""
    drawn = discrete_gaussian(count, stddev, key)
    return np.concatenate([drawn, drawn[drawn == 0]])


def cuts_the_tail(count: int, stddev: float, key: Key) -> np.ndarray:
    return np.clip(discrete_gaussian(count, stddev, key), -math.floor(2 * stddev), math.floor(2 * stddev))


def rounds_down(count: int, stddev: float, key: Key) -> np.ndarray:
    return np.floor(key.normal(count, stddev=stddev).numpy())


@pytest.mark.parametrize(
    ("broken", "chances"),
    [(keeps_minus_zero, chances_of_discrete), (cuts_the_tail, chances_of_discrete), (rounds_down, chances_of_rounded)],
    ids=["zero", "tail", "floor"],
)
def test_a_biased_sampler_is_caught(broken: Draw, chances: Chances) -> None:
    assert p_value(broken(200_000, 3.0, Key.from_seed(5)), chances(3.0, 9)) < 1e-6


def test_opendp_draws_from_the_same_law() -> None:
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.l2_distance(T=float)
    theirs = np.array(opendp.m.make_gaussian(*space, scale=3.0)([0] * 20_000), float)
    assert p_value(theirs, chances_of_discrete(3.0, 9)) > 1e-4


def test_numbers_below_a_bound_have_no_modulo_bias() -> None:
    """2^64 is 8/3 of this bound, so remainders of words would be in the last third in 2 of 8 cases."""
    third = 2**61
    drawn = below(3 * third, 30_000, Key.from_seed(0)) // third
    assert stats.chisquare(np.bincount(drawn, minlength=3)).pvalue > 1e-4
    biased = (Key.from_seed(0).integers(30_000) % np.uint64(3 * third)).astype(np.int64) // third
    assert stats.chisquare(np.bincount(biased, minlength=3)).pvalue < 1e-6


def test_gaps_are_geometric() -> None:
    drawn = gaps(200_000, 0.3, Key.from_seed(1)).astype(int)
    chances = 0.3 * 0.7 ** np.arange(12)
    counts = np.append(np.bincount(drawn, minlength=12)[:12], (drawn >= 12).sum())
    assert stats.chisquare(counts, np.append(chances, 0.7**12) * len(drawn)).pvalue > 1e-4


@pytest.mark.parametrize("stddev", [0.0, -1.0, math.inf, math.nan, 2.0**41])
def test_noise_that_cannot_be_drawn_is_refused(stddev: float) -> None:
    for draw in (rounded_gaussian, discrete_gaussian):
        with pytest.raises(BadValue, match="2\\^40"):
            draw(3, stddev, Key.from_seed(0))
