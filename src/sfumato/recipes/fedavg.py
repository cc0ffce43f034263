"""FedAvg without privacy: the explicit baseline. Its ledger records that nothing was hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sfumato
from sfumato.pieces.sampler import parse_sampler

if TYPE_CHECKING:
    from sfumato.round import Round


def fedavg(
    population: int,
    *,
    sample: str = "poisson:0.5",
    lr: float = 0.5,
    epochs: int = 5,
    steps: int = 0,
    batch_size: int = 10,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    lr_decay: float = 1.0,
    proximal: float = 0.0,
    server_optimizer: str = "sgd",
    server_lr: float = 1.0,
) -> Round:
    """Federated averaging, weighted by the clients' numbers of records (McMahan et al. 2017)."""
    from sfumato.local.sgd import local_sgd
    from sfumato.pieces.optimizer import optimizer_named

    return sfumato.Round(
        sample=parse_sampler(sample),
        local=local_sgd(lr, epochs, steps, batch_size, momentum, weight_decay, lr_decay, proximal),
        aggregate=sfumato.RealisedMean(by="examples"),
        optimizer=optimizer_named(server_optimizer, server_lr),
        nonprivate=True,
    )
