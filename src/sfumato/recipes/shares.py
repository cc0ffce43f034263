"""DP-FedAvg without a trusted server: each client adds a share of the noise, and only the sum is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.round import Round


def dp_fedavg_shares(
    population: int, *, sample: str = "fixed:50", relation: str = "", smallest: int = 0, **common: Any
) -> Round:
    """Noise shares in a secure sum, simulated: `smallest` is the smallest cohort that may reply (0: all of it)."""
    from sfumato.pieces.channel import SecureSum
    from sfumato.pieces.noise import NoiseShare
    from sfumato.pieces.sampler import parse_sampler
    from sfumato.recipes.dp_fedavg import dp_fedavg, parts

    sampler = parse_sampler(sample, relation or ("replace" if sample == "everyone" else ""))
    base = dp_fedavg(population, sample=sample, relation=relation, **common)
    honest = (smallest or round(sampler.expected(population))) - getattr(sampler, "curious", 1)
    _, _, law = parts(base)
    client = (*base.client, NoiseShare(law, max(1, honest)))
    return replace(base, sample=sampler, client=client, channel=SecureSum(smallest), server=())
