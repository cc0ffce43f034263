"""Each client's own epsilon, when clips, rates or noises differ between clients."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.account.event import Event, GaussianEvent, PoissonSampled, Real, Repeated
from sfumato.account.protocol import accountant
from sfumato.errors import BadValue


def client_event(stddev: Real, norm: Real, rate: Real, rounds: int) -> Event:
    """What happens to a client with this clip norm and rate when the noisy sum has this standard deviation.

    Its row moves the sum by at most its own norm (add/remove), so a smaller budget means a smaller norm or rate. Norms
    and rates must be public.
    """
    noise = GaussianEvent(stddev / norm)
    return Repeated(PoissonSampled(rate, noise) if rate < 1 else noise, rounds)


def individual_epsilons(
    stddev: Real, norms: Sequence[float], rates: Sequence[float], rounds: int, delta: Real, *, by: str = "auto"
) -> list[float]:
    """The epsilon of each client; what holds for all of them is the largest.

    >>> [round(value, 2) for value in individual_epsilons(1.0, [1.0, 0.5], [0.05, 0.05], 200, 1e-5)]
    [4.77, 1.56]
    """
    if len(norms) != len(rates):
        raise BadValue(f"{len(norms)} norms but {len(rates)} rates: give one of each per client.")
    price = accountant(by)
    known: dict[tuple[float, float], float] = {}
    for pair in zip(norms, rates, strict=True):
        if pair not in known:
            known[pair] = price.epsilon(client_event(stddev, *pair, rounds), delta)
    return [known[pair] for pair in zip(norms, rates, strict=True)]
