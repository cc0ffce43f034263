"""Every client's budget and what was spent of it, grouped by budget, as run.json has it."""

from __future__ import annotations

from typing import Any

from sfumato.account.event import Event
from sfumato.account.protocol import Accountant
from sfumato.budget.budgets import Budgets, ranges
from sfumato.local.per_client import PerClient
from sfumato.pieces.clip import Clip
from sfumato.pieces.clip_per_client import ClipPerClient
from sfumato.pieces.presence import PoissonPerClient
from sfumato.round import Round


def told(given: Budgets, round: Round, size: int, event: Event, by: Accountant | None = None) -> list[dict[str, Any]]:
    """One line for each budget: whose it is, what it is, how it is kept to, and what was spent. Public facts all."""
    named = {client for who, _ in given.own for client in who}
    other = next((client for client in range(size) if client not in named), 0)
    lines = []
    for (who, budget), line in zip(given.groups(size), given.lines(round.unit, size), strict=True):
        client = who[0] if who else other
        lines.append(
            {
                "clients": ranges(who) if who else "all others",
                "count": len(who) if who else size - len(named),
                **dict.fromkeys(("law", "by", "rounds")),
                **budget.to_table(),
                **_settings(round, client),
                "spent": line.spent(event, by=by),
            }
        )
    return lines


def _settings(round: Round, client: int) -> dict[str, Any]:
    """What keeps a client to its budget: its own noise, norm, rate and last round, where clients have their own."""
    found: dict[str, Any] = {}
    if isinstance(round.local, PerClient) and (noise := round.local.of(client).noise_and_norm()) is not None:
        found["noise_multiplier"] = noise[0]
    clips = [piece for piece in round.client if isinstance(piece, ClipPerClient | Clip)]
    if any(isinstance(piece, ClipPerClient) for piece in clips):
        found["clip"] = min(
            piece.of(client).norm if isinstance(piece, ClipPerClient) else piece.norm for piece in clips
        )
    if isinstance(round.sample, PoissonPerClient):
        presence = round.sample.of(client)
        found |= {"rate": presence.rate, "last_round": presence.rounds}
    return found
