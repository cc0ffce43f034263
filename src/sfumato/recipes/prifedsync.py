"""PriFedSync: what leaves a client is already private for each of its records, so the server need not be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sfumato
from sfumato.pieces.sampler import parse_sampler
from sfumato.recipes import usual

if TYPE_CHECKING:
    from sfumato.round import Round


def prifedsync(
    population: int,
    *,
    sample: str = usual.SAMPLE,
    batch: str = "fixed:16",
    records: int = usual.RECORDS,
    steps: int = usual.RECORD_STEPS,
    clip: float = usual.RECORD_CLIP,
    noise_multiplier: float = usual.RECORD_NOISE,
    optimizer: str = "adam",
    lr: float = 0.001,
    weight_decay: float = usual.WEIGHT_DECAY,
    lr_decay: float = usual.LR_DECAY,
    helper_weight: float = 0.1,
    proximal: float = usual.PROXIMAL,
    server_lr: float = usual.SERVER_LR,
) -> Round:
    """Zheng, Chen, Long and Su 2021. Their noise has standard deviation 2 * sigma * clip: `noise_multiplier` is 2 sigma."""
    from sfumato.pieces.optimizer import local_optimizer

    drawn, moves = parse_sampler(batch, option="batch"), local_optimizer(optimizer, lr)
    noise = sfumato.Gaussian(noise_multiplier)
    return sfumato.Round(
        sample=parse_sampler(sample),
        local=sfumato.DpSgd(steps, drawn, records, clip, noise, moves, weight_decay, lr_decay, proximal),
        aggregate=sfumato.RealisedMean(),
        optimizer=sfumato.GradientDescent(server_lr),
        personal=None if helper_weight == 1.0 else sfumato.HelperBlend(helper_weight),
        unit=sfumato.Unit.RECORD,
    )


def perturb_model(
    population: int,
    *,
    sample: str = usual.SAMPLE,
    steps: int = usual.RECORD_STEPS,
    batch_size: int = 16,
    clip: float = usual.RECORD_CLIP,
    noise_multiplier: float = usual.RECORD_NOISE,
    lr: float = 0.1,
    momentum: float = usual.MOMENTUM,
    weight_decay: float = usual.WEIGHT_DECAY,
    lr_decay: float = usual.LR_DECAY,
    proximal: float = usual.PROXIMAL,
    server_lr: float = usual.SERVER_LR,
) -> Round:
    """One record may turn a whole update around, so it costs what hiding the whole client costs: twice the clip norm."""
    from sfumato.local.sgd import local_sgd

    return sfumato.Round(
        sample=parse_sampler(sample, "replace"),
        local=local_sgd(lr, 1, steps, batch_size, momentum, weight_decay, lr_decay, proximal),
        client=(sfumato.Clip(clip), sfumato.AddNoise(sfumato.Gaussian(noise_multiplier))),
        aggregate=sfumato.RealisedMean(),
        optimizer=sfumato.GradientDescent(server_lr),
        unit=sfumato.Unit.RECORD,
    )
