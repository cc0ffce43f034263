"""What a noise piece must hold: the scale that it draws is the scale that it states."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import fft, stats

from sfumato.account.event import (
    DiscreteGaussianEvent,
    Event,
    GaussianEvent,
    LaplaceBallEvent,
    LaplaceEvent,
    PoissonSampled,
    PureEvent,
)
from sfumato.claim import Claim, Reach
from sfumato.key import Key
from sfumato.pieces.context import Context
from sfumato.testing.piece import check_on_grid, claim_for
from sfumato.update import Layout

_DIMENSION = 20_000


def check_noise(piece: Any, *, l2: float = 0.3, grid: float | None = None) -> None:
    """The noise on every coordinate has the stated law: accepted at its scale, and rejected at 2/3 and 3/2 of it.

    Coordinates are independent of each other, of the value and of the round; no coordinate goes without. On a `grid` the
    noise is a whole number of its steps.
    """
    claim = replace(claim_for(_DIMENSION, l2), aggregated=True, grid=grid)
    event = piece.carry(claim).world
    assert isinstance(event, PoissonSampled), f"{piece} states {event}, not the sampler's amplified event"
    law, stated = stated_law(event.event, claim.reach())
    drawn = _drawn(piece, claim, torch.zeros(_DIMENSION), "first")
    check_law(drawn, stated, law)
    value = torch.linspace(-l2, l2, _DIMENSION)
    if grid is not None:
        check_on_grid(torch.from_numpy(drawn), grid, str(piece))
        value = (value / grid).trunc() * grid
    shifted = _drawn(piece, claim, value, "first") - value.double().numpy()
    assert np.allclose(shifted, drawn, atol=1e-5 * stated), f"{piece}: the noise depends on the value"
    second = _drawn(piece, claim, torch.zeros(_DIMENSION), "second")
    check_uncorrelated(drawn, second, "of two rounds")
    check_uncorrelated(drawn[:-1], drawn[1:], "of neighbouring coordinates")
    half = _DIMENSION // 2
    check_uncorrelated(drawn[:half], drawn[half:], "of the two halves of a row")
    check_unrepeated(drawn, stated)
    for part in np.array_split(drawn, 10):
        assert (part != 0).all(), f"{piece}: some coordinates carry no noise"
        check_law(part, stated, law)


def stated_law(event: Event, reach: Reach) -> tuple[str, float]:
    """The law and the standard deviation on each coordinate that an event of one release stands for.

    Noise of a pure epsilon that depends on the L1 norm of many coordinates is Laplace on each, but for one part in them.
    """
    match event:
        case GaussianEvent(ratio=ratio) | DiscreteGaussianEvent(ratio=ratio):
            return "norm", ratio * reach.l2
        case LaplaceEvent(ratio=ratio):
            return "laplace", math.sqrt(2.0) * ratio * reach.l1
        case LaplaceBallEvent(ratio=ratio):
            return "laplace", math.sqrt(2.0) * ratio * reach.l2
        case PureEvent(epsilon=epsilon):
            return "laplace", math.sqrt(2.0) / epsilon * reach.l1
    raise AssertionError(f"{event} is stated, for which there is no law here yet")


def _drawn(piece: Any, claim: Claim, value: torch.Tensor, name: str) -> np.ndarray:
    layout = Layout(("weight",), (value.shape,))
    noisy = piece(value, Context(0, layout, claim, Key.from_seed(5).child(name)))
    assert noisy.shape == value.shape, f"{piece} changes the shape"
    return np.asarray(noisy.double().numpy())


def check_law(drawn: np.ndarray, stddev: float, law: str = "norm") -> None:
    """Noise of this law and scale is accepted; two thirds and three halves of it are rejected."""

    def p_value(size: float) -> float:
        scale = size if law == "norm" else size / math.sqrt(2.0)
        return float(stats.kstest(drawn / scale, law).pvalue)

    assert p_value(stddev) > 1e-6, f"the noise has standard deviation {drawn.std():.4g}, but {stddev:.4g} is stated"
    for wrong in (2 / 3, 3 / 2):
        assert p_value(stddev * wrong) < 1e-6, "this check cannot tell the scale"


def check_uncorrelated(first: np.ndarray, second: np.ndarray, what: str) -> None:
    """The two have nothing to do with each other."""
    correlation = float(np.corrcoef(first, second)[0, 1])
    assert abs(correlation) < 6.0 / math.sqrt(len(first)), f"the noises {what} are correlated: {correlation:.3f}"


def check_unrepeated(drawn: np.ndarray, stddev: float) -> None:
    """No stretch of the noise comes again at any distance, and every stretch has its variance.

    The correlation of the noise with itself is within 8 of its standard deviations of zero at all distances at once, which
    independent coordinates exceed with probability below 1e-7 for 10 million; a repeated tenth is far outside.
    """
    count = len(drawn)
    spectrum = fft.rfft(np.pad(drawn / stddev, (0, fft.next_fast_len(2 * count, real=True) - count)))
    correlation = fft.irfft(spectrum.real**2 + spectrum.imag**2)[1:count] / count
    lag = int(np.abs(correlation).argmax()) + 1
    worst = abs(float(correlation[lag - 1]))
    assert worst < 8.0 / math.sqrt(count), f"the noise repeats after {lag} coordinates: correlation {worst:.3f}"
    for place, part in enumerate(np.array_split(drawn, max(1, count // 10_000))):
        ratio = float(part.std()) / stddev
        assert 0.8 < ratio < 1.25, f"part {place} of the noise has {ratio:.3f} of the stated standard deviation"
