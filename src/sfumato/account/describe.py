"""Events in plain words."""

from __future__ import annotations

from sfumato.account.event import (
    ByClient,
    CappedPoissonSampled,
    Composed,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    NonPrivate,
    Nothing,
    PoissonSampled,
    Relation,
    Repeated,
)

NEIGHBOURS = {
    Relation.ADD_REMOVE: "the {unit} is in the data or is not",
    Relation.REPLACE: "the {unit}'s data are swapped for any other",
    Relation.ZERO_OUT: "the {unit} stays, but its contribution is zero",
}


def describe(event: Event) -> str:
    """What happened, as the end of a sentence.

    >>> describe(Repeated(PoissonSampled(0.05, GaussianEvent(1.0)), 200))
    'Gaussian noise of 1 times the sensitivity, Poisson sampling at rate 0.05, 200 times'
    """
    match event:
        case Nothing():
            return "nothing that touches private data"
        case NonPrivate(reason=reason):
            return f"a step without a proven guarantee{f' ({reason})' if reason else ''}"
        case GaussianEvent(ratio=ratio):
            return f"Gaussian noise of {ratio:.6g} times the sensitivity"
        case LaplaceEvent(ratio=ratio):
            return f"Laplace noise of scale {ratio:.6g} times the L1 sensitivity"
        case PoissonSampled(rate=rate, event=inner):
            return f"{describe(inner)}, Poisson sampling at rate {rate:.6g}"
        case FixedSizeSampled(rate=rate, event=inner):
            return f"{describe(inner)}, fixed-size sampling at rate {rate:.6g}"
        case CappedPoissonSampled(rate=rate, cap=cap, event=inner):
            return f"{describe(inner)}, Poisson sampling at rate {rate:.6g} capped at {cap}"
        case Mixture(probability=probability, event=inner):
            return f"with probability {probability:.6g}: {describe(inner)}"
        case ByClient(default=default, groups=groups):
            others = "; ".join(f"{_clients(who)}: {describe(own)}" for who, own in groups)
            return f"[{describe(default)}{f'; but {others}' if others else ''}]"
        case Repeated(event=inner, times=times):
            within = describe(inner)
            return f"{within}, {times:,} times" if not isinstance(inner, Mixture) else f"{times:,} times ({within})"
        case Composed(events=events):
            return "; then ".join(describe(part) for part in events) or "nothing that touches private data"
    return event.words()


def _clients(who: tuple[int, ...]) -> str:
    first = ", ".join(map(str, who[:5]))
    return (
        f"client {first}" if len(who) == 1 else f"clients {first}{f' and {len(who) - 5} more' if len(who) > 5 else ''}"
    )
