"""FedAvg without privacy: the explicit baseline. Its ledger records that nothing was hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sfumato
from sfumato.pieces.sampler import parse_sampler
from sfumato.recipes import usual

if TYPE_CHECKING:
    from sfumato.round import Round


def fedavg(
    population: int,
    *,
    sample: str = usual.SAMPLE,
    lr: float = usual.LR,
    epochs: int = usual.EPOCHS,
    steps: int = usual.STEPS,
    batch_size: int = usual.BATCH_SIZE,
    momentum: float = usual.MOMENTUM,
    weight_decay: float = usual.WEIGHT_DECAY,
    lr_decay: float = usual.LR_DECAY,
    proximal: float = usual.PROXIMAL,
    server_optimizer: str = usual.SERVER_OPTIMIZER,
    server_lr: float = usual.SERVER_LR,
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
