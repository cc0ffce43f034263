"""DP-FedAvg with BLUR and LUS: shorter and sparser updates, so that clipping takes less from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.round import Round


def dp_fedavg_blur(population: int, *, penalty: float = 1.0, keep: float = 1.0, **common: Any) -> Round:
    """A penalty on updates longer than the clip (BLUR); below `keep` 1, each client's largest coordinates only (LUS).

    A penalty is no bound and sparsity hides nothing: the clip and the dense noise prove the guarantee.
    """
    from sfumato.local.penalty import NormPenalty
    from sfumato.pieces.mask import TopK
    from sfumato.recipes.dp_fedavg import dp_fedavg, parts

    base = dp_fedavg(population, **common)
    local, clip, _ = parts(base)
    penalties = (*local.penalties, NormPenalty(penalty, clip))
    return replace(base, local=replace(local, penalties=penalties), client=(TopK(keep), *base.client))
