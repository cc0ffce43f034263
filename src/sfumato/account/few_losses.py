"""Repetition of a release whose loss takes two or three values: the exact multinomial sum in place of a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from sfumato.account.event import Event, Real, Repeated
from sfumato.account.gdp import bisect
from sfumato.account.loss_tree import leaves, one_way
from sfumato.account.noises import ROUNDING, Array, log_sampled
from sfumato.account.pairs import Atoms, EitherWay, Pair, Reversed, Sampled

_MOST = 200_000  # outcomes


@dataclass(frozen=True)
class FewLosses:
    """The losses above 0 that all steps together can have, and their chances, rounded up."""

    losses: Array
    chances: Array
    doubt: float  # how far rounding can have moved a loss

    def delta(self, epsilon: Real) -> float:
        """The exact delta but for the last digits, from above."""
        shown = -np.expm1(np.minimum(epsilon - self.losses - self.doubt, 0.0))
        return min(1.0, float((self.chances * shown).sum()))

    def epsilon(self, delta: Real) -> float:
        """The epsilon whose delta is the one asked for, from above."""
        if self.delta(0.0) <= delta:
            return 0.0
        return bisect(0.0, float(self.losses.max()) + self.doubt, lambda epsilon: self.delta(epsilon) > delta)[1]


def few_losses(event: Event, backward: bool) -> FewLosses | None:
    """What `event` comes to in one direction, if it repeats a release of two or three losses and the sum is not too long.

    How often each loss occurs is multinomial; losses of the same counts are equal.
    """
    if not isinstance(event, Repeated) or leaves(event.event) != [event.event]:
        return None
    found, times = _atoms(one_way(event.event, backward)), event.times
    if found is None or not 2 <= len(found[0]) <= 3 or math.comb(times + len(found[0]) - 1, len(found[0]) - 1) > _MOST:
        return None
    values, log_p = found[0], found[1]
    first = np.arange(times + 1.0)
    counts = np.stack([first, times - first])
    if len(values) == 3:
        one, two = (part.ravel() for part in np.meshgrid(first, first))
        counts = np.stack([one, two, times - one - two])[:, one + two <= times]
    total = (values[:, None] * counts).sum(0)
    counts, total = counts[:, total > 0], total[total > 0]
    logs = gammaln(times + 1.0) - gammaln(counts + 1.0).sum(0) + (log_p[:, None] * counts).sum(0)
    error = 32 * ROUNDING * (gammaln(times + 1.0) + times * float(np.abs(log_p).max()) + 1.0)
    return FewLosses(total, np.exp(logs + error), 8 * ROUNDING * times * float(np.abs(values).max()))


def _atoms(pair: Pair) -> tuple[Array, Array, Array] | None:
    """The losses, and the log-chances of P and of Q, of a pair that is made of atoms."""
    match pair:
        case Atoms(values=values, chances=chances):
            some = np.array(chances) > 0.0
            losses, log_p = np.array(values)[some], np.log(np.array(chances)[some])
            return losses, log_p, log_p - losses
        case Sampled(pair=inner, rate=rate) if (found := _atoms(inner)) is not None:
            losses, log_p, log_q = found
            return log_sampled(losses, rate), np.logaddexp(np.log1p(-rate) + log_q, np.log(rate) + log_p), log_q
        case EitherWay(pair=inner) if (found := _atoms(inner)) is not None:
            up = found[0] > 1e-9 * found[0].max()
            losses, log_p, log_q = (part[up] for part in found)
            still = 1.0 - float(np.exp(log_p).sum() + np.exp(log_q).sum())
            atom = np.array([math.log(max(still, 1e-300))])
            both = np.concatenate([losses, [0.0], -losses])
            return both, np.concatenate([log_p, atom, log_q]), np.concatenate([log_q, atom, log_p])
        case Reversed(pair=inner) if (found := _atoms(inner)) is not None:
            return -found[0], found[2], found[1]
    return None
