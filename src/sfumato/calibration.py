"""The smallest noise that proves a target: a new Round, with nothing else changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sfumato.account import calibrate_noise
from sfumato.account.event import Event, Repeated, Unit
from sfumato.errors import BadValue
from sfumato.pieces.clip import Clip
from sfumato.round import Round


def calibrate(round: Round, *, epsilon: float, delta: float, rounds: int, population: int, dimension: int = 1) -> Round:
    """A Round whose proven epsilon after `rounds` rounds is at most the target, and within 0.1 percent of it.

    Every candidate goes through the derivation, so the noise that is found is the noise that is proven.
    """

    def event(noise: float) -> Event:
        derivation = with_noise(round, noise).derive(population=population, dimension=dimension)
        return Repeated(derivation.primary.world, rounds)

    return with_noise(round, calibrate_noise(event, epsilon, delta))


def with_noise(round: Round, noise_multiplier: float) -> Round:
    """The round with other noise for the unit that it must hide."""
    found = _noise(round)
    if found is None:
        raise BadValue(
            "calibrate: the round adds no noise, so there is none to choose. Give it AddNoise(Gaussian(1.0)), or DpSgd."
        )
    slot, place = found
    if slot == "local":
        return replace(round, local=round.local.with_noise(noise_multiplier))
    pieces: tuple[Any, ...] = getattr(round, slot)
    louder = replace(pieces[place], law=replace(pieces[place].law, noise_multiplier=noise_multiplier))
    changed: dict[str, Any] = {slot: (*pieces[:place], louder, *pieces[place + 1 :])}
    return replace(round, **changed)


def noise_and_clip(round: Round) -> tuple[float | None, float | None]:
    """The noise multiplier that hides the round's unit, and the norm that it is a multiple of."""
    found = _noise(round)
    if found is not None and found[0] == "local":
        return round.local.noise_multiplier, round.local.clip
    noise = None if found is None else getattr(round, found[0])[found[1]].law.noise_multiplier
    return noise, next((piece.norm for piece in round.client if isinstance(piece, Clip)), None)


def _noise(round: Round) -> tuple[str, int] | None:
    """Slot and place of the piece that pays: local training where it hides records, else the first, clients before server."""
    usual = getattr(round.local, "default", round.local)  # of clients without settings of their own
    if round.unit is Unit.RECORD and hasattr(usual, "with_noise"):
        return "local", 0
    for slot in ("client", "server"):
        for place, piece in enumerate(getattr(round, slot)):
            if hasattr(getattr(piece, "law", None), "noise_multiplier"):
                return slot, place
    return None
