"""The harmonizer: the size of one law of noise whose proven cost is that of another."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from sfumato.account.calibrate import smallest_noise
from sfumato.account.checks import check_delta
from sfumato.account.protocol import accountant
from sfumato.account.rdp import curve
from sfumato.errors import BadValue, CannotAccount
from sfumato.pieces.law import Gaussian, Laplace
from sfumato.pieces.law_names import NamedLaw
from sfumato.pieces.sampler import Drawn, Everyone, Sampler, parse_drawn
from sfumato.pieces.staircase import Staircase
from sfumato.planning.setting import Setting

_TOLERANCE = 2e-7  # of the cost, whose logarithm falls by at least a fifth of that of the noise
_WIDTH = 5e-7  # of the noise

Some = TypeVar("Some", Gaussian, Laplace, Staircase)


def match(
    law: Some,
    *,
    like: NamedLaw,
    dimension: int | None = None,
    sample: Sampler | str | None = None,
    rounds: int = 1,
    delta: float | None = None,
    by: str = "auto",
) -> Some:
    """`law` with the smallest noise that costs no more than `like`, each under a clip of the same norm in its own order.

    With a `delta`: by the final epsilon of that sampling and so many rounds, as the accountant `by` prints it. Without: by the
    Renyi curve, which is then nowhere above that of `like` on the accountant's orders, so that whatever follows costs no more
    either. States nothing new: both are priced as a Round prices them. The answer is within 1e-6 of the smallest and on the
    safe side: its own cost was computed, and found to be no more.

    >>> from sfumato.pieces.law import Gaussian, Laplace
    >>> round(match(Laplace(1.0), like=Gaussian(0.6002289), delta=1e-5).noise_multiplier, 5)
    0.125
    """
    drawn = sample if isinstance(sample, str) else Drawn(sample or Everyone())
    drawn = parse_drawn(drawn) if isinstance(drawn, str) else drawn
    reference = Setting(like, drawn, rounds, dimension=dimension)
    start = replace(reference, law=law.with_noise(like.noise_multiplier))
    if delta is None:
        wanted = curve(reference.event())
        if not (np.isfinite(wanted).any() and (wanted > 0).all()):
            raise BadValue(f"match: {like} has no Renyi curve here. Give delta, to match by epsilon.")

        def excess(log_noise: float) -> float:
            found = curve(start.at(math.exp(log_noise)).event())
            with np.errstate(invalid="ignore", divide="ignore"):
                over = np.where(np.isinf(wanted), -np.inf, np.log(found) - np.log(wanted))
            return min(float(over.max()), 50.0)

    else:
        check_delta(delta)
        price = accountant(by)
        target = price.epsilon(reference.event(), delta)
        if not 0.0 < target < math.inf:
            raise BadValue(f"match: {like} costs epsilon {target} here, which no other noise can be matched to.")

        def excess(log_noise: float) -> float:
            found = price.epsilon(start.at(math.exp(log_noise)).event(), delta)
            return min(math.log(max(found, 1e-30) / target), 50.0)

    def give_up(noise: float, over: float) -> CannotAccount:
        return CannotAccount(
            f"match: {type(law).__name__} cannot cost as {like} does: noise {noise:.3g} is not enough."
        )

    return law.with_noise(smallest_noise(excess, _TOLERANCE, like.noise_multiplier, give_up, _WIDTH))
