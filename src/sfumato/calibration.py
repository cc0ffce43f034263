"""The smallest noise that proves a target: a new Round, with nothing else changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sfumato.account import calibrate_noise
from sfumato.account.adaptive import FittedOrder
from sfumato.account.event import Event, Unit, compose
from sfumato.account.protocol import Accountant
from sfumato.errors import BadValue
from sfumato.local.per_client import PerClient
from sfumato.pieces.clip import Clip
from sfumato.pieces.clip_per_client import ClipPerClient
from sfumato.pieces.protocol import LocalPiece
from sfumato.round import Round


def calibrate(
    round: Round,
    *,
    epsilon: float,
    delta: float,
    rounds: int,
    population: int,
    dimension: int | None = None,
    before: Event | None = None,
    restarts: int = 0,
    checkpoint_every: int = 1,
    by: Accountant | None = None,
) -> Round:
    """A Round whose proven epsilon after `rounds` rounds is at most the target, and within 0.1 percent of it.

    Every candidate goes through the derivation, so the noise that is found is the noise that is proven. `dimension`, the
    number of trained parameters, is needed where the cost of the noise depends on it. What was spent `before` counts too, and so
    do the rounds that so many `restarts` repeat. `by` is what prices it: by default the tight accountants, for a plan.
    """

    event = _event_of(round, rounds, population, dimension, before, restarts, checkpoint_every)
    if dimension is None:
        check_needs_no_dimension(with_noise(round, 1.0), population)
    return with_noise(round, calibrate_noise(event, epsilon, delta, by=by or "auto"))


def calibrate_with_order(round: Round, by: Accountant, **facts: Any) -> tuple[Round, float | None]:
    """The same, and the order at which an adaptive ledger has to begin, where `by` still fits one to the run.

    The noise is then found once more at that order, so that it is what any later run with these settings finds in the same ledger.
    """
    found = calibrate(round, by=by, **facts)
    if not isinstance(by, FittedOrder):
        return found, None
    target = {"epsilon": facts.pop("epsilon"), "delta": facts.pop("delta")}
    noise, _ = noise_and_clip(found)
    assert noise is not None, "it was found"
    price = by.at(_event_of(round, **{"dimension": None, **facts})(noise))
    return calibrate(round, by=price, **target, **facts), price.order


def _event_of(
    round: Round,
    rounds: int,
    population: int,
    dimension: int | None,
    before: Event | None = None,
    restarts: int = 0,
    checkpoint_every: int = 1,
) -> Callable[[float], Event]:
    def event(noise: float) -> Event:
        proof = with_noise(round, noise).derive(population=population, dimension=dimension or 1).primary
        found = proof.after(rounds + proof.every * proof.again(restarts, checkpoint_every))
        return found if before is None else compose(before, found)

    return event


def check_needs_no_dimension(round: Round, population: int) -> None:
    """Refuse a round whose cost depends on a dimension that was not said."""
    few, many = (round.derive(population=population, dimension=size).primary.world for size in (1, 10**6))
    if few != many:
        raise BadValue(
            "what this noise costs depends on the number of trained parameters. Give it, e.g. dimension=7850."
        )


def with_noise(round: Round, noise_multiplier: float) -> Round:
    """The round with other noise for the unit that it must hide."""
    found = _noise(round)
    if found is None:
        raise BadValue(
            "calibrate: the round adds no noise, so there is none to choose. Give it AddNoise(Gaussian(1.0)), or DpSgd."
        )
    slot, place, _ = found
    if slot == "local":
        return replace(round, local=round.local.with_noise(noise_multiplier))
    pieces: list[Any] = list(getattr(round, slot))
    pieces[place] = pieces[place].with_noise(noise_multiplier)
    changed: dict[str, Any] = {slot: tuple(pieces)}
    return replace(round, **changed)


def noise_and_clip(round: Round) -> tuple[float | None, float | None]:
    """The noise multiplier that hides the round's unit, and the norm that it is a multiple of."""
    found = _noise(round)
    noise, norm = (None, None) if found is None else found[2]
    clip = next((piece.norm for piece in round.client if isinstance(piece, Clip | ClipPerClient)), None)
    return noise, clip if norm is None else norm


def noise_for(round: Round, unit: Unit, client: int) -> float:
    """The noise multiplier that hides one client's unit, by what is its own where clients differ; 0 if there is none."""
    local = round.local.of(client) if isinstance(round.local, PerClient) else round.local
    found = _noise(round, local, unit)
    return 0.0 if found is None else found[2][0]


def _noise(
    round: Round, local: LocalPiece | None = None, unit: Unit | None = None
) -> tuple[str, int, tuple[float, float | None]] | None:
    """The piece that pays, by slot and place: local training where it hides records, else the first, clients before server."""
    if (unit or round.unit) is Unit.RECORD and (noise := (local or round.local).noise_and_norm()) is not None:
        return "local", 0, noise
    for slot, pieces in (("client", round.client), ("server", round.server)):
        for place, piece in enumerate(pieces):
            if (noise := piece.noise_and_norm()) is not None:
                return slot, place, noise
    return None
