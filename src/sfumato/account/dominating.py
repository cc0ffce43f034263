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
    CuriousDraws,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    PureEvent,
    Relation,
    Repeated,
    StaircaseEvent,
)
from sfumato.account.noises import ROUNDING, GaussianNoise, LaplaceNoise
from sfumato.account.pairs import Atoms, EitherWay, Mixed, Pair, Plain, PoissonReplaced, Sampled
from sfumato.account.selected import Selected
from sfumato.account.shuffled import Clones, ShuffledEvent
from sfumato.errors import CannotAccount

_DOWN = 1 - 4 * ROUNDING


@singledispatch
def merged_gaussian(event: Event) -> float | None:
    """The ratio of the one Gaussian that equals a composition of Gaussians, rounded down, if that is what `event` is.

    Adaptive composition of Gaussians is exactly a Gaussian of ratio (sum of 1/ratio^2)^(-1/2) (Dong, Roth, Su). An event that is
    exactly Gaussian registers its ratio here, and needs no other registration.

    >>> round(merged_gaussian(Repeated(GaussianEvent(2.0), 4)), 12)
    1.0
    """
    return None


@merged_gaussian.register
def _(event: GaussianEvent) -> float | None:
    return event.ratio


@merged_gaussian.register
def _(event: Repeated) -> float | None:
    ratio = merged_gaussian(event.event)
    return None if ratio is None else ratio / event.times**0.5 * _DOWN


@merged_gaussian.register
def _(event: Composed) -> float | None:
    ratios = [merged_gaussian(part) for part in event.events]
    known = [ratio for ratio in ratios if ratio is not None]
    return _DOWN / math.hypot(*(1 / ratio for ratio in known)) if known and len(known) == len(ratios) else None


@merged_gaussian.register(PoissonSampled)
@merged_gaussian.register(FixedSizeSampled)
def _(event: PoissonSampled | FixedSizeSampled) -> float | None:
    return merged_gaussian(event.event) if event.rate == 1.0 else None


def _gaussian(event: Event) -> GaussianNoise | None:
    ratio = merged_gaussian(event)
    return None if ratio is None else GaussianNoise(1 / ratio)


def _sampled(event: Event, rate: float) -> Pair:
    """((1-rate) Q + rate P, Q), where (P, Q) dominates `event`.

    This dominates a Poisson sample for any pair of the two neighbours that differ by one unit (Zhu, Dong, Wang 2022,
    Theorem 11). An event that is made of others is not asked for its pair, since it has none of its own.
    """
    if event.parts() and merged_gaussian(event) is None:
        raise CannotAccount(
            f"sampling around {type(event).__name__} has no proof here. Sample a single release and repeat that."
        )
    return Sampled(pair_of(event), rate) if rate < 1 else pair_of(event)


@singledispatch
def pair_of(event: Event) -> Pair:
    """The dominating pair of an event that is not made of other events' repetition, composition or participation."""
    noise = _gaussian(event)
    if noise is not None:
        return Plain(noise)
    raise CannotAccount(
        f"no dominating pair is known for {type(event).__name__}. Register one with sfumato.account.dominating.pair_of."
    )


@pair_of.register
def _(event: LaplaceEvent) -> Pair:
    return Plain(LaplaceNoise(1 / event.ratio))


@pair_of.register
def _(event: ShuffledEvent) -> Pair:
    """The clones; where none is to be expected, the message alone."""
    if (event.count - 1) * math.exp(-event.epsilon) < 1e-9:
        return pair_of(PureEvent(event.epsilon))
    return EitherWay(Clones(event.epsilon, event.count))


@pair_of.register
def _(event: Selected) -> Pair:
    from sfumato.account.selection import selection_pair  # which prices what is inside, and so stands above this

    return selection_pair(event)


@pair_of.register
def _(event: PureEvent) -> Pair:
    """Randomised response (Kairouz, Oh, Viswanath 2015)."""
    true = 1 / (1 + math.exp(-event.epsilon))
    return Atoms((event.epsilon, -event.epsilon), (true, math.exp(-event.epsilon) * true), symmetric=True)


@pair_of.register
def _(event: StaircaseEvent) -> Pair:
    """The loss is epsilon, 0 or -epsilon; its chances grow with the shift, so the whole step dominates every part of it."""
    fall = math.exp(-event.epsilon)
    density = -math.expm1(-event.epsilon) / (2 * (event.nu + fall * (1 - event.nu)))
    up = 0.5 + density * min(event.nu, 1 - event.nu)
    still = density * (abs(2 * event.nu - 1) * (fall if event.nu < 0.5 else 1.0))
    return Atoms((event.epsilon, 0.0, -event.epsilon), (up, still, up * fall), symmetric=True)


def is_proven(event: PoissonSampled | FixedSizeSampled) -> bool:
    """Whether a sample of a single release has a proof: of a Gaussian always; of others in their own relation, or unsampled.

    What a shuffler hides is known under replace only, and for a known number of messages: never in a Poisson sample.
    """
    if isinstance(event, PoissonSampled) and isinstance(event.event, ShuffledEvent):
        return False
    own = Relation.ADD_REMOVE if isinstance(event, PoissonSampled) else Relation.REPLACE
    known = event.relation is own or event.rate == 1.0
    return known or (event.relation is not Relation.ZERO_OUT and merged_gaussian(event.event) is not None)


@pair_of.register
def _(event: PoissonSampled) -> Pair:
    if not is_proven(event):
        raise _no_proof(event)
    noise = _gaussian(event.event)
    if event.relation is Relation.REPLACE and noise is not None and event.rate < 1:
        return PoissonReplaced(noise, event.rate)
    return _sampled(event.event, event.rate)


@pair_of.register
def _(event: FixedSizeSampled) -> Pair:
    if event.relation is Relation.REPLACE:
        pair = _sampled(event.event, event.rate)
        if event.rate == 1.0:
            return pair
        if pair_of(event.event).symmetric:
            return EitherWay(pair)
    elif is_proven(event):
        return _sampled(event.event, event.rate)
    raise _no_proof(event)


@pair_of.register
def _(event: CuriousDraws) -> Pair:
    """How many of the curious were drawn says all that their draws say: which of them is equally likely in both worlds.

    With t curious, m drawn and j of the curious among them, hypergeometric(N) over hypergeometric(N - 1) at j is
    (N-t)(N-m) / (N (N-t-m+j)), written as 1 plus a fraction of whole numbers so that nothing cancels.
    """
    every, drawn, known = event.population, event.size, event.curious
    values, chances = [], []
    for among in range(min(known, drawn) + 1):
        values.append(math.log1p((known * drawn - every * among) / (every * (every - known - drawn + among))))
        ways = math.comb(known, among) * math.perm(drawn, among) * math.perm(every - drawn, known - among)
        chances.append(ways / math.perm(every, known))
    return Atoms(tuple(values), tuple(chances))


@pair_of.register
def _(event: CappedPoissonSampled) -> Pair:
    """Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha and Zhang 2025: whether the cap bit is told to the observer.

    If it did not, the event is Poisson-sampled. If it did, the unit displaces another, so the sensitivity doubles.
    """
    noise = _gaussian(event.event)
    if event.relation is not Relation.ADD_REMOVE or noise is None:
        raise _no_proof(event)
    bites = float(bdtrc(event.cap - 1, event.population - 1, event.rate))
    free = Sampled(Plain(noise), event.rate)
    if bites == 0.0:
        return free
    taken = float(bdtrc(event.cap, event.population, event.rate)) * event.cap / bites / event.population
    return Mixed(bites, PoissonReplaced(GaussianNoise(4 * noise.shift), taken), free)


def _no_proof(event: PoissonSampled | FixedSizeSampled | CappedPoissonSampled) -> CannotAccount:
    name, inner = type(event).__name__, type(event.event).__name__
    other = "" if event.relation is Relation.ADD_REMOVE else "add_remove, or "
    return CannotAccount(f"{name} of {inner} has no proof under {event.relation}. Use {other}a Gaussian.")
