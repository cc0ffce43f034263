"""The smallest noise that proves a target: a new Round, with nothing else changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sfumato.account import calibrate_noise
from sfumato.account.event import Event, Repeated
from sfumato.errors import BadValue
from sfumato.noise import AddNoise, Gaussian
from sfumato.round import Round


def calibrate(round: Round, *, epsilon: float, delta: float, rounds: int, population: int, dimension: int = 1) -> Round:
    """A Round whose proven epsilon after `rounds` rounds is at most the target, and within 0.1 percent of it.

    Every candidate goes through the derivation, so the noise that is found is the noise that is proven.
    """
    at = _with_noise(round)
    return at(calibrate_noise(lambda noise: _event(at(noise), rounds, population, dimension), epsilon, delta))


def _event(round: Round, rounds: int, population: int, dimension: int) -> Event:
    return Repeated(round.derive(population=population, dimension=dimension).primary.world, rounds)


def _with_noise(round: Round) -> Callable[[float], Round]:
    """The round as a function of its noise multiplier."""
    for slot in ("server", "client"):
        pieces = getattr(round, slot)
        for place, piece in enumerate(pieces):
            if isinstance(piece, AddNoise):

                def at(
                    noise: float, slot: str = slot, pieces: tuple[object, ...] = pieces, place: int = place
                ) -> Round:
                    quiet = (*pieces[:place], AddNoise(Gaussian(noise)), *pieces[place + 1 :])
                    return replace(round, **{slot: quiet})  # type: ignore[arg-type]

                return at
    raise BadValue("calibrate: the round adds no noise, so there is none to choose. Give it AddNoise(Gaussian(1.0)).")
