"""Direct tests of what an audited round hands out: noise, cohorts, canaries. A failed one contradicts what the round states.

False alarms. A sound round fails one of them with probability at most `BY_TESTS`, half of the 1e-6 of a verdict; the scores of
canaries have the other half. It is split evenly among `_MOST` tests, and within a test among all the numbers that the test
looks at (a union bound), so no independence between tests is needed. Each p-value is exact or from a proven bound:

- signs: noise keeps its distribution when any of its coordinates change sign (also the joint staircase). So, given the sizes,
  signs are independent fair coins. The products of pairs at one distance (in rounds and coordinates) are fair coins too, since
  these pairs form no circle. A sum of n of them obeys the bound of Chernoff and Hoeffding (1963), 2 exp(-n KL).
- size: -log P(|X| > |x|) is exponential, and a sum of n independent ones has the gamma distribution. For the joint staircase the
  L1 norm takes the place of x, and each coordinate's part of it, of which (1 - part)^(d - 1) is uniform.
- distribution: the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's (1990) constant, 2 exp(-2 n t^2).
- cohorts: counts are sums of independent indicators, or of negatively associated ones (sampling without replacement: Hoeffding
  1963, section 6; Joag-Dev and Proschan 1983), for which the same bound 2 exp(-n KL) holds.
- canaries: no randomness, so no false alarm but by rounding, for which there is slack.

Exact real-number arithmetic is assumed of the noise, and the slack of an observation is given in favour of the round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import gammainc, gammaincc, log_ndtr, rel_entr
from scipy.stats import binom

from sfumato.audit.bounds import BY_TESTS
from sfumato.audit.canary_moves import CanaryMoves
from sfumato.audit.observation import Observation, ObservedCohorts
from sfumato.audit.observed_noise import ObservedNoise, Values
from sfumato.pieces.staircase import levels, moments

_MOST = 20  # tests of one round
LEVEL = BY_TESTS / _MOST
KINDS = ("noise", "cohorts", "canaries")
_PAIRS = 1000  # coordinates, or releases, of which all pairs are looked at
_LAGS = 4_000_000  # numbers of noise of which all distances are looked at
_BLOCKS = 64
_LAG = 8


@dataclass(frozen=True)
class DirectTest:
    """One statement of a round, what was looked at, and a bound on the probability of such an observation if it is true."""

    of: str  # one of KINDS
    statement: str
    seen: str
    p_value: float

    @property
    def failed(self) -> bool:
        return not self.p_value > LEVEL

    @property
    def line(self) -> str:
        fate = f"FAILED, p < {max(self.p_value, 1e-300):.2g}" if self.failed else "no contradiction"
        return f"{self.of}: {self.statement} ({self.seen}): {fate}"


def direct_tests(observed: Observation) -> tuple[DirectTest, ...]:
    """Every test that suits what was observed."""
    found = [] if observed.noise is None else list(noise_tests(observed.noise))
    for cohorts in observed.cohorts:
        found += cohort_tests(cohorts)
    if observed.moves is not None:
        found += canary_tests(observed.moves)
    assert len(found) <= _MOST, "they share the probability of a false alarm"
    return tuple(found)


def summary(tests: tuple[DirectTest, ...]) -> list[str]:
    """For people: what failed, what was looked at without a contradiction, and what was not tested."""
    found = [one.line for one in tests if one.failed]
    passed: dict[str, list[str]] = {}
    for one in tests:
        if not one.failed:
            passed.setdefault(f"{one.of} ({one.seen})", []).append(one.statement)
    found += [f"{what}: no contradiction. {'; '.join(said)}." for what, said in passed.items()]
    missing = [of for of in KINDS if of not in {one.of for one in tests}]
    return [*found, f"not tested: {', '.join(missing)}"] if missing else found


def count_p_value(successes: Any, trials: Any, rate: Any) -> Values:
    """A bound on the probability of a count so far from its mean: 2 exp(-n KL(k/n, rate)).

    >>> float(count_p_value(50, 100, 0.5)), bool(count_p_value(0, 100, 0.5) < 1e-29)
    (1.0, True)
    """
    share = np.divide(successes, np.maximum(trials, 1))
    divergence = rel_entr(share, rate) + rel_entr(1.0 - share, 1.0 - rate)
    return np.asarray(
        np.where(np.asarray(trials) > 0, np.minimum(1.0, 2.0 * np.exp(-np.asarray(trials) * divergence)), 1.0)
    )


def _least(*p_values: Values | float) -> float:
    """The smallest of many p-values, times their number; 0 where one is not a number."""
    every = np.concatenate([np.ravel(one) for one in p_values])
    return float(min(1.0, every.min() * len(every))) if not np.isnan(every).any() else 0.0


# --- noise -----------------------------------------------------------------------------------------------------------------


def noise_tests(noise: ObservedNoise) -> Iterator[DirectTest]:
    """That every coordinate has the stated noise, and that no two numbers have to do with each other."""
    releases, width = noise.values.shape
    seen = f"{releases} releases of {width:,} coordinates" + (f" in place of {noise.cut:,}" if noise.cut else "")

    def test(statement: str, p_value: float) -> DirectTest:
        return DirectTest("noise", statement, seen, p_value)

    if not np.isfinite(noise.values).all():
        yield test("every number is finite", 0.0)
        return
    few, many = surprises(noise)
    if many is not None:
        yield test("every coordinate has the stated scale", _gamma(many.sum(0), few.sum(0), releases))
    if noise.family == "staircase":
        few, many = radial_surprises(noise)
        yield test("the norm has the stated scale", _gamma(many.sum(), few.sum(), releases))
    else:
        assert many is not None
        stretches = [(many, few), *zip(_split(many), _split(few), strict=True)]
        parts = [(most.sum(), least.sum(), most.size) for most, least in stretches]
        yield test("every stretch has the stated scale", _gamma(*map(np.array, zip(*parts, strict=True))))
    signs = np.sign(noise.values)
    fair = count_p_value((signs.size + signs.sum()) / 2.0, signs.size, 0.5)
    yield test("it has the stated distribution", _least(_dkw(few.ravel(), many.ravel()), fair))
    yield test("no two numbers at any distance are related", _lags(signs))
    if 1 < width <= _PAIRS:
        yield test("no two coordinates are related", _pairs(signs))
    if releases <= _PAIRS:
        yield test("no two rounds are related", _pairs(signs.T))


def surprises(noise: ObservedNoise) -> tuple[Values, Values | None]:
    """-log P(|X| > |x|) of every number, which is exponential: at least, and at most, by how far rounding may have moved it."""
    if noise.family == "staircase":
        width = noise.values.shape[1]
        if width == 1:
            return noise.values, None
        part = np.abs(noise.values) / np.abs(noise.values).sum(1, keepdims=True).clip(1e-300)
        found = -(width - 1) * np.log1p(-np.minimum(part, 1.0 - 1e-16))
        return found * (1.0 - 1e-5), found * (1.0 + 1e-5)
    rate: Callable[[Values], Values] = _laplace if noise.family == "laplace" else _normal
    size = np.abs(noise.values)
    return rate((size - noise.slack).clip(0.0)), rate(size + noise.slack)


def radial_surprises(noise: ObservedNoise) -> tuple[Values, Values]:
    """-log P(R > r) of the L1 norm of every release of staircase noise, which is exponential."""
    assert noise.law is not None
    width = noise.values.shape[1]
    share = noise.law.share(width)
    first, below = levels(width, noise.law.loss, share)
    chances = np.diff(below, prepend=0.0) / below[-1]
    ends = first + np.arange(len(chances)) + share
    deviation = np.sqrt(moments(width, noise.law.loss, share)[1] / width)
    norms = np.abs(noise.values).sum(1) * deviation

    def rate(norm: float) -> float:
        inside = np.exp(width * np.log(np.minimum(1.0, max(norm, 1e-300) / ends)))
        return float(-np.log(max(1e-300, (chances * (1.0 - inside)).sum())))

    return np.array([rate(n * (1 - 1e-5)) for n in norms]), np.array([rate(n * (1 + 1e-5)) for n in norms])


def _normal(size: Values) -> Values:
    return np.asarray(-(np.log(2.0) + log_ndtr(-size))).clip(0.0)


def _laplace(size: Values) -> Values:
    return np.asarray(np.sqrt(2.0) * size)


def _split(values: Values) -> list[Values]:
    return np.array_split(values, min(_BLOCKS, values.shape[1]), axis=1)


def _gamma(most: Any, least: Any, count: Any) -> float:
    """Sums of exponential numbers: too small where even the largest that they can be is, too large where the smallest is."""
    return _least(2.0 * gammainc(count, most), 2.0 * gammaincc(count, least)) if np.size(most) else 1.0


def _dkw(least: Values, most: Values) -> float:
    """The largest distance of the counted from the stated distribution of exponential numbers, 1 - e^-x."""
    low, high, count = np.sort(least), np.sort(most), len(least)
    rank = np.arange(count)
    far = max(float(((rank + 1) / count + np.expm1(-high)).max()), float((-np.expm1(-low) - rank / count).max()), 0.0)
    return min(1.0, 2.0 * float(np.exp(-2.0 * count * far**2)))


def _lags(signs: Values) -> float:
    """Products of signs at every distance in releases and coordinates, summed over all pairs at that distance."""
    releases, width = signs.shape
    if signs.size > _LAGS:
        releases = 2
        signs = signs[:releases, : _LAGS // releases]
        width = signs.shape[1]
    shape = tuple(fft.next_fast_len(2 * count, real=True) for count in (releases, width))
    spectrum = fft.rfft2(signs, shape)
    sums = np.rint(fft.irfft2(spectrum.real**2 + spectrum.imag**2, shape)[:releases])
    sums = np.concatenate([sums[:, :width], sums[:, shape[1] - width + 1 :]], axis=1)
    along = np.concatenate([np.arange(width, 0, -1), np.arange(1, width)])
    trials = np.arange(releases, 0, -1)[:, None] * along[None, :]
    p_values = count_p_value((trials + sums) / 2.0, trials, 0.5)
    p_values[0, 0] = 1.0
    return _least(p_values)


def _pairs(signs: Values) -> float:
    """Products of signs of every two columns, summed over the rows."""
    count = len(signs)
    sums = (signs.T @ signs)[np.triu_indices(signs.shape[1], 1)]
    return _least(count_p_value((count + sums) / 2.0, count, 0.5))


# --- cohorts ---------------------------------------------------------------------------------------------------------------


def cohort_tests(cohorts: ObservedCohorts) -> Iterator[DirectTest]:
    """That all are drawn at the stated rate, independently of other rounds and, for Poisson sampling, of each other."""
    runs, rounds, population = cohorts.drawn.shape
    drawn, count = cohorts.drawn.reshape(-1, population), runs * rounds
    seen = f"{count:,} draws from {population:,} {cohorts.of}, {rounds} a run"
    sizes = drawn.sum(1)
    rate = cohorts.rate if cohorts.independent else int(sizes[0]) / population

    def test(statement: str, p_value: float) -> DirectTest:
        return DirectTest("cohorts", statement, seen, p_value)

    yield test("they hold different members of the population", float(cohorts.strays == 0))
    if not cohorts.independent:
        yield test("they have one size", float(sizes.min() == sizes.max()))
        yield test(f"the rate is at most {cohorts.rate:.3g}", float(rate <= cohorts.rate * (1.0 + 1e-12)))
    yield test(f"each is drawn at rate {rate:.3g}", _least(count_p_value(drawn.sum(0), count, rate)))
    if cohorts.independent:
        yield test(
            "sizes are binomial",
            _least(_binomial(sizes, population, rate), count_p_value(sizes.sum(), drawn.size, rate)),
        )
    yield test(
        "rounds are independent", _over_rounds(cohorts.drawn, None if cohorts.independent else int(sizes[0]), rate)
    )
    if population > 1:
        size, pairs = int(sizes[0]), population // 2
        both = rate**2 if cohorts.independent else rate * (size - 1) / (population - 1)
        next_to = drawn[:, : 2 * pairs : 2] & drawn[:, 1 : 2 * pairs : 2]
        opposite = drawn[:, :pairs] & drawn[:, pairs : 2 * pairs]
        together = [count_p_value(one.sum(), count * pairs, both) for one in (next_to, opposite)]
        yield test("neighbours are drawn independently", _least(*together))


def _binomial(sizes: NDArray[np.int64], population: int, rate: float) -> float:
    counted = np.cumsum(np.bincount(sizes, minlength=population + 1)) / len(sizes)
    far = float(np.abs(counted - binom.cdf(np.arange(population + 1), population, rate)).max())
    return min(1.0, 2.0 * float(np.exp(-2.0 * len(sizes) * far**2)))


def _over_rounds(drawn: NDArray[np.bool_], size: int | None, rate: float) -> float:
    """How many are drawn twice, in separate pairs of rounds: of one run, at each distance, and of runs one after the other."""
    runs, rounds, population = drawn.shape
    found = []
    for lag in range(1, min(rounds - 1, _LAG) + 1):
        first = [place for place in range(rounds - lag) if place // lag % 2 == 0]
        found.append((drawn[:, first], drawn[:, [place + lag for place in first]]))
    even = runs - runs % 2
    found.append((drawn[0:even:2], drawn[1:even:2]))
    p_values = []
    for one, two in found:
        pairs = one.shape[0] * one.shape[1]
        both = int((one & two).sum())
        trials, share = (pairs * population, rate**2) if size is None else (pairs * size, rate)
        p_values.append(count_p_value(both, trials, share))
    return _least(*p_values)


# --- canaries --------------------------------------------------------------------------------------------------------------


def canary_tests(moves: CanaryMoves) -> Iterator[DirectTest]:
    """That no canary's message is longer, and no canary moves the sum further, than is stated."""
    for statement, over in (
        ("no message is longer than stated", moves.lengths),
        ("no sum moves further than stated", moves.sums),
    ):
        if over:
            name = max(over, key=lambda one: float(np.nan_to_num(over[one], nan=np.inf)))
            worst = over[name]
            seen = f"{len(over)} updates of {moves.coordinates:,} coordinates; the largest is {worst:.6g} times the bound: {name}"
            yield DirectTest("canaries", statement, seen, float(worst <= 1.0))
