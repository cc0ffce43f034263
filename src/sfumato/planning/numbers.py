"""The numbers of `sfumato plan` and `sfumato account` as plain functions: what noise, sampling and steps cost.

All four speak of the same thing: Gaussian noise on a sum of clipped rows, of which each is drawn with probability `rate`, anew in
each of `steps` steps. A row is a record's gradient, as in `dp-sgd`, or a client's update, as in `dp-fedavg`. `noise_multiplier`
is the noise's standard deviation over the clip norm, whatever the relation. They assume what a Round would check: batches
are drawn so (shuffled ones are not), in secret; the sum is divided by a number fixed before the data are seen; the same noise is
added to an empty batch; arithmetic is that of real numbers.

`relation` says what is hidden. `add-remove`, the usual one: whether a row is there. `replace`: which of two rows it is; with the
same noise that costs more. `zero-out`: whether it is zero; costs as much as add-remove.
"""

from __future__ import annotations

from sfumato.account.checks import check_target
from sfumato.account.protocol import accountant
from sfumato.pieces.law import Gaussian
from sfumato.pieces.sampler import parse_drawn
from sfumato.planning.setting import Setting, parse_relation
from sfumato.planning.solve import Plan, Question, solve

USUAL = "add-remove"


def noise_multiplier(
    *, epsilon: float, delta: float, steps: int, rate: float = 1.0, relation: str = USUAL, by: str = "auto"
) -> float:
    """The smallest noise, over the clip norm, that proves (epsilon, delta) after `steps` steps; see the module for what is assumed.

    It is that of `sfumato plan --epsilon E --delta D --sample poisson:RATE --rounds STEPS`. The answer lies on the safe side: its
    own epsilon is at most the target, and within 0.1 percent of it. `by` is the accountant.

    >>> round(noise_multiplier(epsilon=2.0, delta=1e-5, rate=0.01, steps=1000), 3)
    0.959
    """
    return _solved(None, rate, steps, epsilon, delta, relation, by).setting.law.noise_multiplier


def epsilon(
    *, noise_multiplier: float, delta: float, steps: int, rate: float = 1.0, relation: str = USUAL, by: str = "auto"
) -> float:
    """The smallest epsilon that is proven at `delta` for this noise; see the module for what is assumed.

    It is that of `sfumato account --noise gaussian:Z --delta D --sample poisson:RATE --rounds STEPS`.

    >>> round(epsilon(noise_multiplier=1.0, delta=1e-5, rate=0.01, steps=1000), 3)
    1.828
    >>> round(epsilon(noise_multiplier=1.0, delta=1e-5, rate=0.01, steps=1000, relation="replace"), 3)
    2.844
    """
    return _solved(noise_multiplier, rate, steps, None, delta, relation, by).epsilon


def delta(
    *, noise_multiplier: float, epsilon: float, steps: int, rate: float = 1.0, relation: str = USUAL, by: str = "auto"
) -> float:
    """The smallest delta that is proven at `epsilon` for this noise; see the module for what is assumed.

    >>> round(1e6 * delta(noise_multiplier=1.0, epsilon=2.0, rate=0.01, steps=1000), 2)
    2.67
    """
    check_target(epsilon)
    sample = parse_drawn(_drawn(rate), option="rate")
    setting = Setting(Gaussian(noise_multiplier), sample, steps, relation=parse_relation(relation))
    return accountant(by).delta(setting.event(), epsilon)


def steps(
    *, noise_multiplier: float, epsilon: float, delta: float, rate: float = 1.0, relation: str = USUAL, by: str = "auto"
) -> int:
    """The most steps whose proven epsilon at `delta` is at most the target; see the module for what is assumed.

    It is that of `sfumato plan --noise gaussian:Z --epsilon E --delta D --sample poisson:RATE`.

    >>> steps(noise_multiplier=1.0, epsilon=2.0, delta=1e-5, rate=0.01)
    1202
    """
    return _solved(noise_multiplier, rate, None, epsilon, delta, relation, by).setting.rounds


def _drawn(rate: float) -> str:
    return f"poisson:{float(rate)!r}"


def _solved(
    noise: float | None,
    rate: float,
    steps: int | None,
    epsilon: float | None,
    delta: float,
    relation: str,
    by: str,
) -> Plan:
    law = None if noise is None else Gaussian(noise)
    return solve(Question(law, _drawn(rate), steps, epsilon, delta, relation=parse_relation(relation), accountant=by))
