"""The smallest noise that meets a target epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable

from sfumato.account.checks import check_delta, check_target
from sfumato.account.dominating import merged_gaussian
from sfumato.account.event import Event, Real
from sfumato.account.protocol import Accountant, accountant
from sfumato.errors import CannotAccount

SMALLEST_NOISE, LARGEST_NOISE = 1e-3, 1e7


def calibrate_noise(
    event_of: Callable[[float], Event],
    epsilon: Real,
    delta: Real,
    *,
    by: str | Accountant = "auto",
    tolerance: Real = 2e-4,
    guess: Real = 1.0,
) -> float:
    """The smallest noise whose proven epsilon is at most the target, and within `tolerance` of it (0.1 percent is promised).

    `event_of(noise)` must cost less as the noise grows. The answer always lies on the safe side: its own epsilon was computed
    and found to be at most the target.

    >>> from sfumato.account.event import GaussianEvent
    >>> round(calibrate_noise(GaussianEvent, 8.0, 1e-5), 6)
    0.600229
    """
    check_target(epsilon)
    check_delta(delta)
    price = accountant(by) if isinstance(by, str) else by
    if merged_gaussian(event_of(guess)) is not None:
        tolerance = 1e-10

    def excess(log_noise: float) -> float:
        found = price.epsilon(event_of(math.exp(log_noise)), delta)
        return 50.0 if math.isinf(found) else math.log(max(found, 1e-30) / epsilon)

    def give_up(noise: float, over: float) -> CannotAccount:
        if over <= 0:
            return CannotAccount(
                f"epsilon={epsilon} is met by any noise: the least that is tried, {noise:.3g}, costs less. Give the noise instead, "
                "or a smaller epsilon."
            )
        extreme = f"noise {noise:.3g} costs epsilon {epsilon * math.exp(over):.3g}"
        return CannotAccount(
            f"epsilon={epsilon} cannot be met by choosing the noise: {extreme}. Change the target or the rounds."
        )

    # a proven epsilon may jump by more than the tolerance, where an accountant changes its grid: then the noise is near enough
    return smallest_noise(excess, tolerance, guess, give_up, width=tolerance / 100)


def smallest_noise(
    excess: Callable[[float], float],
    tolerance: Real,
    guess: Real,
    give_up: Callable[[float, float], CannotAccount],
    width: float = 1e-13,
) -> float:
    """The smallest noise whose `excess` (log of its cost over the target, by the log of the noise) was found to be at most 0.

    It ends when that lies within `tolerance` of 0, or when noise smaller by `width` was found to cost too much.
    """
    smallest, largest = math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE)
    unsafe, safe = -math.inf, math.inf
    last: tuple[float, float] | None = None
    at = math.log(guess)
    for _ in range(200):
        over = excess(at)
        unsafe, safe = (at, safe) if over > 0 else (unsafe, at)
        if math.log1p(-tolerance) <= over <= 0 or safe - unsafe < width:
            return math.exp(safe)
        if unsafe >= largest or safe <= smallest:
            raise give_up(math.exp(at), over)
        step = _secant(last, (at, over), math.log1p(-tolerance / 2))
        last, at = (at, over), min(max(at + step, smallest), largest)
        if not unsafe < at < safe and math.isfinite(safe - unsafe):
            at = (safe + unsafe) / 2
    return math.exp(safe)


def most_rounds(
    event_after: Callable[[int], Event], epsilon: Real, delta: Real, rounds: int, by: Accountant | None = None
) -> int:
    """The most rounds, up to `rounds`, whose proven epsilon is at most the target; `event_after` costs more as they grow.

    >>> from sfumato.account.event import GaussianEvent, Nothing, Repeated
    >>> most_rounds(lambda n: Repeated(GaussianEvent(10.0), n) if n else Nothing(), 2.0, 1e-5, rounds=100)
    25
    """
    price = by or accountant("auto")
    low, high = 0, rounds
    while low < high:
        middle = (low + high + 1) // 2
        within = price.epsilon(event_after(middle), delta) <= epsilon
        low, high = (middle, high) if within else (low, middle - 1)
    return low


def _secant(last: tuple[float, float] | None, now: tuple[float, float], aim: float) -> float:
    """How far to go from `now` to reach `aim`: log epsilon falls almost linearly in log noise."""
    slope = -1.3
    if last is not None and last[0] != now[0]:
        slope = min(max((now[1] - last[1]) / (now[0] - last[0]), -20.0), -0.2)
    return min(max((aim - now[1]) / slope, -2.5), 2.5)
