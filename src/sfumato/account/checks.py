"""The arguments that every accountant refuses, in one place."""

from __future__ import annotations

import math

from sfumato.account.event import Real
from sfumato.errors import BadValue

LARGEST_ROUNDS = 100_000_000


def check_delta(delta: Real) -> None:
    """A delta is a probability strictly between 0 and 1."""
    if not 0.0 < delta < 1.0:
        raise BadValue(
            f"delta={delta}: a probability strictly between 0 and 1 is needed, e.g. 1e-5 (below 1/population)."
        )


def check_epsilon(epsilon: Real) -> None:
    """An epsilon is finite and not negative."""
    if not (epsilon >= 0.0 and math.isfinite(epsilon)):
        raise BadValue(f"epsilon={epsilon}: a finite number of at least 0 is needed, e.g. 2.0.")


def check_target(epsilon: Real) -> None:
    """A target epsilon is finite and positive."""
    if not (epsilon > 0.0 and math.isfinite(epsilon)):
        raise BadValue(f"epsilon={epsilon}: a positive, finite target is needed, e.g. 2.0.")


def check_rate(false_positive_rate: Real) -> None:
    """A false positive rate is a probability."""
    if not 0.0 <= false_positive_rate <= 1.0:
        raise BadValue(f"false_positive_rate={false_positive_rate}: a number from 0 to 1 is needed.")


def check_rounds(rounds: int, name: str = "rounds") -> None:
    """A count of rounds is a whole number from 1 to a hundred million."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= LARGEST_ROUNDS:
        raise BadValue(f"{name}={rounds}: a whole number from 1 to {LARGEST_ROUNDS:,} is needed.")
