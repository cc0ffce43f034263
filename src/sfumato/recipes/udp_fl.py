"""UDP-FL: each record is hidden where it lies, by any law of noise, and all laws are priced in one currency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sfumato
from sfumato.pieces.sampler import parse_sampler

if TYPE_CHECKING:
    from sfumato.data.population import PublicData
    from sfumato.round import Round

_CLIPS = {1: 4.0, 2: 1.0}  # by the order of the norm: with these, one learning rate suits all laws


def udp_fl(
    population: int,
    public: PublicData | None = None,
    *,
    law: str = "gaussian",
    sample: str = "everyone",
    batch: str = "poisson:0.05",
    records: int = 6000,
    steps: int = 2,
    clip: float = 0.0,
    noise_multiplier: float = 1.0,
    lr: float = 1.0,
    lr_decay: float = 1.0,
    proximal: float = 0.0,
    server_lr: float = 1.0,
) -> Round:
    """Any law of noise on clipped gradients of single records, priced in one currency; the clip is in the law's own norm."""
    from sfumato.pieces.law_names import law_named
    from sfumato.pieces.optimizer import GradientDescent

    noise, order = law_named(law, noise_multiplier)
    drawn, norm, moves = parse_sampler(batch, option="batch"), clip or _CLIPS[order], GradientDescent(lr)
    local = sfumato.DpSgd(steps, drawn, records, norm, noise, moves, 0.0, lr_decay, proximal, order)
    return sfumato.Round(
        sample=parse_sampler(sample),
        local=local,
        aggregate=sfumato.RealisedMean(),
        optimizer=GradientDescent(server_lr),
        unit=sfumato.Unit.RECORD,
    )
