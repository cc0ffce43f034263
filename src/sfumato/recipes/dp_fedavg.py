"""DP-FedAvg: each client's whole update is clipped, the sum is divided by a declared number, and the server adds noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sfumato
from sfumato.pieces.law import Gaussian
from sfumato.pieces.sampler import parse_sampler
from sfumato.recipes import usual

if TYPE_CHECKING:
    from sfumato.local.sgd import Sgd
    from sfumato.round import Round


def dp_fedavg(
    population: int,
    *,
    sample: str = usual.SAMPLE,
    relation: str = usual.OWN_RELATION,
    clip: float = 0.5,
    noise_multiplier: float = usual.NOISE_MULTIPLIER,
    weight_cap: int = 0,
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
    average: float = usual.AVERAGE,
) -> Round:
    """Federated averaging with client-level differential privacy (McMahan, Ramage, Talwar and Zhang 2018)."""
    from sfumato.local.sgd import local_sgd
    from sfumato.pieces.optimizer import optimizer_named

    sampler, optimizer = parse_sampler(sample, relation), optimizer_named(server_optimizer, server_lr)
    return sfumato.Round(
        sample=sampler,
        local=local_sgd(lr, epochs, steps, batch_size, momentum, weight_decay, lr_decay, proximal),
        client=(sfumato.Clip(clip), *([sfumato.WeightByExamples(weight_cap)] if weight_cap else [])),
        aggregate=sfumato.Mean(over=sampler.expected(population)),
        server=(sfumato.AddNoise(Gaussian(noise_multiplier)),),
        optimizer=sfumato.Averaged(optimizer, average) if average else optimizer,
    )


def parts(base: Round) -> tuple[Sgd, float, Gaussian]:
    """What recipes that change DP-FedAvg read of it: its local steps, its clip norm and its noise."""
    local, clip, noise = base.local, base.client[0], base.server[0]
    assert isinstance(local, sfumato.Sgd) and isinstance(clip, sfumato.Clip)
    assert isinstance(noise, sfumato.AddNoise) and isinstance(noise.law, Gaussian)
    return local, clip.norm, noise.law
