"""NbAFL, the baseline of UDP-FL, as published: it trains, and nothing is proven of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sfumato

if TYPE_CHECKING:
    from sfumato.round import Round


def nbafl(
    population: int,
    *,
    claimed: float = 8.0,
    claimed_delta: float = 1e-5,
    norm: float = 20.0,
    records: int = 600,
    uploads: int = 150,
    lr: float = 0.1,
    epochs: int = 2,
    batch_size: int = 64,
) -> Round:
    """Wei et al. 2020: `claimed` and `claimed_delta` are what it says of all `uploads` rounds, in which everyone takes part."""
    from sfumato.local.nbafl import STEP, Nbafl, NbaflNoise, WithinBall

    noise = Nbafl(claimed, claimed_delta, norm, records, rounds=uploads, exposures=uploads, clients=population)
    return sfumato.Round(
        sample=sfumato.Everyone(),
        local=WithinBall(sfumato.Sgd(lr=lr, epochs=epochs, batch_size=batch_size), norm),
        client=(NbaflNoise(noise.uplink),),
        aggregate=sfumato.RealisedMean(),
        unit=sfumato.Unit.RECORD,
        unproven=sfumato.Unproven("NbAFL (Wei et al. 2020)", STEP, noise.claimed),
    )
