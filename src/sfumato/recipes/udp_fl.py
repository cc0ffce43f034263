"""UDP-FL: each record is hidden where it lies, by any law of noise, and all laws are priced in one currency."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sfumato
from sfumato.errors import BadValue, nearest
from sfumato.pieces.sampler import parse_sampler
from sfumato.recipes import usual

if TYPE_CHECKING:
    from sfumato.data.population import PublicData
    from sfumato.round import Round

_CLIPS = {1: 4.0, 2: 1.0}  # by the order of the norm: with these, one learning rate suits all laws
_STEP = "formulas for one coordinate price noise on every coordinate of an L2-clipped gradient, whose losses add up"
_ON_PUBLIC: dict[str, Callable[[PublicData], Any]] = {
    "mode-connectivity": lambda public: sfumato.ModeConnectivity(public),
    "mean-then-public": lambda public: sfumato.MeanThenPublic(public),
}
_AGGREGATES: dict[str, Callable[[], Any]] = {
    "mean": lambda: sfumato.RealisedMean(),
    "median": lambda: sfumato.Median(),
    "trimmed": lambda: sfumato.TrimmedMean(),
    "geometric": lambda: sfumato.GeometricMedian(),
}


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
    noise_multiplier: float = usual.NOISE_MULTIPLIER,
    lr: float = 1.0,
    lr_decay: float = usual.LR_DECAY,
    proximal: float = usual.PROXIMAL,
    aggregate: str = "mean",
    shuffle: bool = False,
    scaffold: bool = False,
    server_lr: float = usual.SERVER_LR,
) -> Round:
    """Any law of noise on clipped gradients of single records, priced in one currency; the clip is in the law's own norm."""
    from sfumato.pieces.law_names import AS_PUBLISHED, law_named
    from sfumato.pieces.optimizer import GradientDescent

    noise, order = law_named(law, noise_multiplier)
    drawn, norm, moves = parse_sampler(batch, option="batch"), clip or _CLIPS[order], GradientDescent(lr)
    return sfumato.Round(
        sample=parse_sampler(sample),
        local=sfumato.DpSgd(steps, drawn, records, norm, noise, moves, 0.0, lr_decay, proximal, order),
        channel=sfumato.Shuffler() if shuffle else sfumato.Plain(),
        aggregate=_aggregate(aggregate, public),
        optimizer=GradientDescent(server_lr),
        personal=sfumato.ControlVariates() if scaffold else None,
        unit=sfumato.Unit.RECORD,
        unproven=sfumato.Unproven("UDP-FL (Feng et al. 2024)", _STEP) if law in AS_PUBLISHED else False,
    )


def dp_fedsgd(population: int, *, steps: int = 1, clip: float = 0.08, **common: Any) -> Round:
    """One noisy step of each client in a round (Abadi et al. 2016), averaged: the record-level baseline of AE-DPFL."""
    return udp_fl(population, steps=steps, clip=clip, **common)


def _aggregate(name: str, public: PublicData | None) -> Any:
    known = [*_AGGREGATES, *_ON_PUBLIC]
    if name not in known:
        raise BadValue(f"aggregate={name!r}: there is no such aggregate. {nearest(name, known)}")
    if (public is None) == (name in _ON_PUBLIC):
        need = (
            "trains on public records: give --public-records 1000"
            if public is None
            else f"has no use for public records: leave them out, or use {' or '.join(_ON_PUBLIC)}"
        )
        raise BadValue(f"aggregate={name!r} {need}.")
    return _AGGREGATES[name]() if public is None else _ON_PUBLIC[name](public)
