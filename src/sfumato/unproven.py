"""What is known of a round whose privacy could not be proven as it was published: the claim, and the truth of the same noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sfumato.account import accountant
from sfumato.account.event import Event, Repeated
from sfumato.account.papers.udp_fl import as_published, in_many_dimensions
from sfumato.derive import Derivation
from sfumato.errors import UnsoundRound
from sfumato.local.per_client import PerClient
from sfumato.pieces.as_published import AsPublished
from sfumato.round import Round, Unproven

_REALLY = {"proven": "proven for this very noise", "limit": "attained in the limit of many coordinates"}
BY_FORMULA, BY_EVENT = "the paper's own formula", "its event, by our accountant"


def claims(round: Round, derivation: Derivation, rounds: int, delta: float) -> dict[str, Any]:
    """What is claimed after so many rounds, by what and by whom, the step that fails; and what is known of the same noise."""
    said = round.unproven if isinstance(round.unproven, Unproven) else Unproven()
    known = known_of(round, population=derivation.population, dimension=derivation.dimension)
    claimed = said.claimed or known.get("claimed")

    def epsilon(event: Event | None) -> float | None:
        return accountant().epsilon(Repeated(event, rounds), delta) if event is not None and rounds else None

    failed = (step.states for step in derivation.primary.steps if not step.proven)
    answer: dict[str, Any] = {
        "claimed_epsilon": None,
        "claimed_by": "",
        "paper": said.paper,
        "step": said.step or next(failed, "no step, it was only asked to run unproven"),
    }
    if isinstance(claimed, Event):
        answer |= {"claimed_epsilon": epsilon(claimed), "claimed_by": BY_EVENT}
    elif claimed is not None and rounds:
        answer |= {"claimed_epsilon": claimed.claimed_epsilon(rounds, delta), "claimed_by": BY_FORMULA}
    really = {words: epsilon(known[name]) for name, words in _REALLY.items() if name in known and rounds}
    return {**answer, "really": really} if really else answer


def known_of(round: Round, *, population: int, dimension: int) -> dict[str, Event]:
    """What one round costs by the published formula ("claimed"), by what is proven of the same noise ("proven"), and as the
    dimension grows ("limit"); nothing for a round without a law as published.

    The truth is that of the same round with the same noise, walked as any other, so it has no second source.
    """
    if not any(isinstance(law, AsPublished) for law in _laws((round.local, *round.client, *round.server))):
        return {}
    pieces: dict[str, Any] = {"local": _true(round.local)}
    pieces |= {slot: tuple(_true(piece) for piece in getattr(round, slot)) for slot in ("client", "server")}
    try:
        honest = replace(round, **pieces, unproven=False)
        proven = honest.derive(population=population, dimension=dimension).primary.world
    except UnsoundRound:
        return {}
    limit = in_many_dimensions(proven)
    return {"claimed": as_published(proven), "proven": proven} | ({} if limit is None else {"limit": limit})


def _laws(pieces: tuple[Any, ...]) -> list[Any]:
    parts = (part for piece in pieces for part in (piece.pieces if isinstance(piece, PerClient) else (piece,)))
    return [getattr(part, "law", None) for part in parts]


def _true(piece: Any) -> Any:
    """The piece with the true law of the same noise; local training that differs by client, in each of its parts."""
    if isinstance(getattr(piece, "law", None), AsPublished):
        return replace(piece, law=piece.law.law)
    if isinstance(piece, PerClient):
        return PerClient(_true(piece.default), tuple((who, _true(one)) for who, one in piece.own))
    return piece
