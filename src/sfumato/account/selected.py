"""The best of a random number of runs (Liu and Talwar 2019; Papernot and Steinke 2022): what happened, and how often.

One run releases an output and, with it, a score. How often it is run is drawn in secret, whatever the data are, from the
truncated negative binomial law on 1, 2, ...:

  P(K = k) proportional to (1 - gamma)^k eta (eta + 1) ... (eta + k - 1) / k!      with eta > -1 and 0 < gamma < 1

(eta = 1 is the geometric law; eta = 0, in the limit, the logarithmic one). The generating function E x^K has the derivative
E[K] (gamma / (gamma + (1 - gamma)(1 - x)))^(eta + 1), which is all that a price needs (`selection`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato.account.event import Event, Real, Secret, register
from sfumato.errors import BadValue
from sfumato.key import Key

_SMALLEST_GAMMA = 1e-300
_BITS = 128  # of the number that is drawn
_PRECISION = 320  # bits in which chances are summed, so that only the drawn number's own last bit is left to chance


@register
@dataclass(frozen=True)
class Selected(Event):
    """`event` was run a secret, random number of times, and of all that came out only the output of the best score was shown.

    Each run has fresh randomness and draws its settings by itself, from a public list. The score is part of what `event` pays
    for; equal scores are decided by lot. It holds for whoever sees that one output: not how many runs there were, nor how long
    they took, nor anything of the others.

    >>> from sfumato.account.event import PureEvent
    >>> Selected(PureEvent(0.1), gamma=0.2).words()
    'the best of a random number of runs (5 on average), each: a release of pure epsilon 0.1'
    """

    event: Event
    gamma: Real
    eta: Real = 1.0

    def __post_init__(self) -> None:
        _check(self.eta, self.gamma)

    @property
    def mean(self) -> float:
        """How many runs there are on average."""
        return mean_runs(self.eta, self.gamma)

    def words(self) -> str:
        law = "" if self.eta == 1.0 else f", eta {self.eta:.6g}"
        return f"the best of a random number of runs ({self.mean:.6g} on average{law}), each: {self.event.words()}"

    @property
    def sampling(self) -> str:
        return f"a random number of runs, {self.mean:.6g} on average"

    @property
    def secret(self) -> Secret | None:
        return Secret.RUNS


def _check(eta: Real, gamma: Real) -> None:
    if not (eta > -1.0 and math.isfinite(eta)):
        raise BadValue(
            f"eta={eta}: a finite number above -1 is needed; 1 draws the number of runs from a geometric law."
        )
    if not _SMALLEST_GAMMA <= gamma < 1.0:
        raise BadValue(f"gamma={gamma}: a number strictly between 0 and 1 is needed, e.g. 0.2 for 5 runs on average.")


def mean_runs(eta: Real, gamma: Real) -> float:
    """E[K]: (1/gamma - 1) / log(1/gamma) times t / (1 - e^-t), with t = eta log(1/gamma).

    >>> round(mean_runs(1.0, 0.2), 12), round(mean_runs(0.0, 0.2), 6)
    (5.0, 2.48534)
    """
    length = -math.log(gamma)
    grown = eta * length
    return math.expm1(length) / length * (grown / -math.expm1(-grown) if grown else 1.0)


def gamma_for(mean: Real, eta: Real = 1.0) -> float:
    """The gamma with which there are so many runs on average.

    >>> round(gamma_for(5.0), 12)
    0.2
    """
    if not (mean > 1.0 and math.isfinite(mean)):
        raise BadValue(f"{mean:g} runs on average: more than 1 is needed, since there is always one.")
    low, high = math.log(_SMALLEST_GAMMA), -1e-12
    _check(eta, 0.5)
    if mean_runs(eta, math.exp(low)) < mean:
        raise BadValue(f"{mean:g} runs on average are out of reach at eta={eta}. Use a larger eta, e.g. 1.0.")
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_runs(eta, math.exp(middle)) > mean else (low, middle)
    return math.exp(high)


def runs(eta: Real, gamma: Real, key: Key) -> int:
    """How often to run: a draw from the law, whose chances are all within 2^-128 of the true ones.

    A uniform number of 128 bits is compared with sums of chances in 320 bits.

    >>> [runs(1.0, 0.2, Key.from_seed(seed)) for seed in range(8)]
    [10, 2, 11, 2, 1, 4, 2, 4]
    """
    from mpmath import MPContext

    _check(eta, gamma)
    exact = MPContext()
    exact.prec = _PRECISION
    shape, stay = exact.mpf(eta), 1 - exact.mpf(gamma)
    high, low = (int(word) for word in key.integers(2))
    left = exact.mpf(high << 64 | low) / 2**_BITS
    chance = stay / -exact.log(gamma) if eta == 0 else stay * shape / exact.expm1(-shape * exact.log(gamma))
    count = 1
    while left >= chance > 0:
        left -= chance
        chance *= stay * (count + shape) / (count + 1)
        count += 1
    return count
