"""DP-FedAvg with adaptive clipping: the norm follows a quantile of the updates' norms, and its bit is paid for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.round import Round


def dp_fedavg_adaptive(
    population: int, *, quantile: float = 0.5, clip_rate: float = 0.2, bit_weight: float = 0.1, **common: Any
) -> Round:
    """Adaptive clipping (Andrew et al. 2021); `clip` is the norm of the first round."""
    from sfumato.pieces.clip import AdaptiveClip
    from sfumato.recipes.dp_fedavg import dp_fedavg, parts

    base = dp_fedavg(population, **common)
    _, clip, _ = parts(base)
    return replace(base, client=(AdaptiveClip(clip, quantile, clip_rate, bit_weight), *base.client[1:]))
