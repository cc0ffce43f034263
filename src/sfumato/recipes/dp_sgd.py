"""DP-SGD: one trusted holder of all records trains on them, and the models of all steps may be seen. A round is a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import sfumato
from sfumato.pieces.sampler import parse_sampler
from sfumato.recipes import usual

if TYPE_CHECKING:
    from sfumato.round import Round


def dp_sgd(
    population: int,
    *,
    batch: str = "poisson:0.1",
    relation: str = usual.OWN_RELATION,
    records: int = 60_000,
    clip: float = usual.RECORD_CLIP,
    noise_multiplier: float = usual.NOISE_MULTIPLIER,
    optimizer: str = "momentum",
    lr: float = 0.2,
    momentum: float = 0.9,
    weight_decay: float = usual.WEIGHT_DECAY,
    average: float = usual.AVERAGE,
    micro_batch: int = 0,
) -> Round:
    """Abadi et al. 2016: each record's gradient is clipped, their sum is noised and divided by the expected batch."""
    from sfumato.pieces.optimizer import Momentum, local_optimizer

    drawn, moves = parse_sampler(batch, relation, option="batch"), local_optimizer(optimizer, lr)
    moves = replace(moves, momentum=momentum) if isinstance(moves, Momentum) else moves
    noise, gradient = sfumato.Gaussian(noise_multiplier), sfumato.GradientDescent(1.0)
    return sfumato.Round(
        sample=sfumato.Everyone(),
        local=sfumato.DpSgd(1, drawn, records, clip, noise, gradient, weight_decay, micro_batch=micro_batch),
        channel=sfumato.OneHolder(),
        aggregate=sfumato.RealisedMean(),
        optimizer=sfumato.Averaged(moves, average) if average else moves,
        unit=sfumato.Unit.RECORD,
    )
