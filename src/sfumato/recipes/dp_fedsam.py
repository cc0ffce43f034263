"""DP-FedSAM: flat minima move less, so clipping and noise hurt less. What it proves is what DP-FedAvg proves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sfumato.errors import BadValue, nearest

if TYPE_CHECKING:
    from sfumato.round import Round


def dp_fedsam(population: int, *, radius: float = 0.5, adaptive: bool = False, **common: Any) -> Round:
    """Sharpness-aware local steps (Shi et al. 2023); `adaptive` measures relative to the weights, as the released code does."""
    from sfumato.local.sharpness import SharpnessAware
    from sfumato.recipes.dp_fedavg import dp_fedavg, parts

    base = dp_fedavg(population, **common)
    local, _, _ = parts(base)
    return replace(base, local=replace(local, gradient=SharpnessAware(radius, adaptive)))


def dp_fedsam_top_k(population: int, *, keep: float = 0.4, mask: str = "dense", **common: Any) -> Round:
    """Sparse updates. `mask`: dense (own choice, noise everywhere), random, previous; published is false, and runs unproven."""
    from sfumato.account.event import GaussianEvent, PoissonSampled
    from sfumato.pieces.channel import SecureSum
    from sfumato.pieces.mask import PreviousTopK, RandomMask, SharedMask, TopK
    from sfumato.pieces.noise import NoiseShare
    from sfumato.recipes.dp_fedavg import parts
    from sfumato.round import Unproven

    base = dp_fedsam(population, **common)
    if mask == "dense":
        return replace(base, client=(TopK(keep), *base.client))
    if mask in ("random", "previous"):
        chosen = RandomMask() if mask == "random" else PreviousTopK()
        return replace(base, client=(SharedMask(keep, chosen), *base.client))
    if mask != "published":
        raise BadValue(f"mask={mask!r}: {nearest(mask, ['dense', 'random', 'previous', 'published'])}")
    (_, _, noise), cohort = parts(base), base.sample.expected(population)
    claimed = PoissonSampled(cohort / population, GaussianEvent(noise.noise_multiplier))
    step = "each client drops coordinates after adding its share of the noise, so what it keeps is hidden by few shares"
    return replace(
        base,
        client=(*base.client, NoiseShare(noise, max(1, round(cohort))), TopK(keep)),
        channel=SecureSum(),
        server=(),
        unproven=Unproven("DP-FedSAM (Shi et al. 2023)", step, claimed),
    )
