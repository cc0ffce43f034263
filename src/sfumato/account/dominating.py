"""Which pair dominates which event: the one place that knows sampling.

A third party makes an event accountable with

    @pair_of.register
    def _(event: MyEvent) -> Pair: ...
"""

from __future__ import annotations

import math
from functools import singledispatch

from scipy.special import bdtrc

from sfumato.account.event import (
    CappedPoissonSampled,
    Composed,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    Relation,
    Repeated,
)
from sfumato.account.noises import ROUNDING, GaussianNoise, LaplaceNoise, Noise
from sfumato.account.pairs import EitherWay, Mixed, Pair, Plain, PoissonReplaced, Sampled
from sfumato.errors import CannotAccount

_DOWN = 1 - 4 * ROUNDING


def merged_gaussian(event: Event) -> float | None:
    """The ratio of the one Gaussian that equals a composition of Gaussians, rounded down, if that is what `event` is.

    Adaptive composition of Gaussians is exactly a Gaussian of ratio (sum of 1/ratio^2)^(-1/2) (Dong, Roth, Su).

    >>> round(merged_gaussian(Repeated(GaussianEvent(2.0), 4)), 12)
    1.0
    """
    match event:
        case GaussianEvent(ratio=ratio):
            return ratio
        case Repeated(event=inner, times=times):
            ratio_once = merged_gaussian(inner)
            return None if ratio_once is None else ratio_once / times**0.5 * _DOWN
        case Composed(events=events) if events:
            ratios = [merged_gaussian(part) for part in events]
            known = [ratio for ratio in ratios if ratio is not None]
            return _DOWN / math.hypot(*(1 / ratio for ratio in known)) if len(known) == len(ratios) else None
        case PoissonSampled(rate=1.0, event=inner) | FixedSizeSampled(rate=1.0, event=inner):
            return merged_gaussian(inner)
    return None


def noise_of(event: Event) -> Noise:
    """The noise inside a sampled event."""
    ratio = merged_gaussian(event)
    if ratio is not None:
        return GaussianNoise(1 / ratio)
    if isinstance(event, LaplaceEvent):
        return LaplaceNoise(1 / event.ratio)
    raise CannotAccount(
        f"sampling around {type(event).__name__} has no proof here. Sample a Gaussian or a Laplace event and repeat that."
    )


@singledispatch
def pair_of(event: Event) -> Pair:
    """The dominating pair of an event that is not made of other events' repetition, composition or participation."""
    raise CannotAccount(
        f"no dominating pair is known for {type(event).__name__}. Register one with sfumato.account.dominating.pair_of."
    )


@pair_of.register
def _(event: GaussianEvent) -> Pair:
    return Plain(GaussianNoise(1 / event.ratio))


@pair_of.register
def _(event: LaplaceEvent) -> Pair:
    return Plain(LaplaceNoise(1 / event.ratio))


@pair_of.register
def _(event: PoissonSampled) -> Pair:
    noise = noise_of(event.event)
    if event.relation is Relation.ADD_REMOVE:
        return Sampled(noise, event.rate) if event.rate < 1 else Plain(noise)
    if event.relation is Relation.REPLACE and isinstance(noise, GaussianNoise):
        return PoissonReplaced(noise, event.rate) if event.rate < 1 else Plain(noise)
    raise _no_proof(event, event.relation)


@pair_of.register
def _(event: FixedSizeSampled) -> Pair:
    noise = noise_of(event.event)
    if event.relation is Relation.REPLACE:
        return EitherWay(Sampled(noise, event.rate)) if event.rate < 1 else Plain(noise)
    if event.relation is Relation.ADD_REMOVE and isinstance(noise, GaussianNoise):
        return Sampled(noise, event.rate) if event.rate < 1 else Plain(noise)
    raise _no_proof(event, event.relation)


@pair_of.register
def _(event: CappedPoissonSampled) -> Pair:
    """Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha and Zhang 2025: whether the cap bit is told to the observer.

    If it did not, the event is Poisson-sampled. If it did, the unit displaces another, so the sensitivity doubles.
    """
    noise = noise_of(event.event)
    if event.relation is not Relation.ADD_REMOVE or not isinstance(noise, GaussianNoise):
        raise _no_proof(event, event.relation)
    bites = float(bdtrc(event.cap - 1, event.population - 1, event.rate))
    free = Sampled(noise, event.rate)
    if bites == 0.0:
        return free
    taken = float(bdtrc(event.cap, event.population, event.rate)) * event.cap / bites / event.population
    return Mixed(bites, PoissonReplaced(GaussianNoise(4 * noise.shift), taken), free)


def _no_proof(event: PoissonSampled | FixedSizeSampled | CappedPoissonSampled, relation: Relation) -> CannotAccount:
    name, inner = type(event).__name__, type(event.event).__name__
    return CannotAccount(f"{name} of {inner} has no proof under {relation}. Use add_remove, or a Gaussian.")
