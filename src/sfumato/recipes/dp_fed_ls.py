"""DP-Fed-LS: DP-FedAvg whose noisy aggregate is smoothed along the row. Smoothing is free; the guarantee is DP-FedAvg's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.round import Round


def dp_fed_ls(
    population: int, *, strength: float = 1.0, per_layer: bool = False, project: bool = False, **common: Any
) -> Round:
    """Laplacian smoothing of the noisy aggregate (Liang et al. 2020); `project` clips after every local step, as they do."""
    from sfumato.pieces.after_noise import LaplacianSmoothing
    from sfumato.recipes.dp_fedavg import dp_fedavg, parts

    base = dp_fedavg(population, **common)
    local, clip, _ = parts(base)
    local = replace(local, project=clip) if project else local
    return replace(base, local=local, server=(*base.server, LaplacianSmoothing(strength, per_layer)))
