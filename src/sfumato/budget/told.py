"""Every client's budget and what was spent of it, grouped by budget: for run.json, the report and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sfumato.budget.budgets import Budgets, ranges
from sfumato.guarantee import rounded_up
from sfumato.local.per_client import PerClient
from sfumato.pieces.clip import Clip
from sfumato.pieces.clip_per_client import ClipPerClient
from sfumato.pieces.presence import PoissonPerClient
from sfumato.round import Round

Spent = Callable[[int, float], float | None]  # epsilon that was spent on a client at a delta


def told(given: Budgets, round: Round, size: int, spent: Spent) -> list[dict[str, Any]]:
    """One line for each budget: whose it is, what it is, how it is kept to, and what was spent. Public facts all."""
    named = {client for who, _ in given.own for client in who}
    other = next((client for client in range(size) if client not in named), 0)
    lines = []
    for who, budget in given.groups(size):
        client = who[0] if who else other
        lines.append(
            {
                "clients": ranges(who) if who else "all others",
                "count": len(who) if who else size - len(named),
                **{name: None for name in ("law", "by", "rounds")},
                **budget.to_table(),
                **_settings(round, client),
                "spent": spent(client, budget.delta),
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
        found["clip"] = min(piece.of(client).norm if isinstance(piece, ClipPerClient) else piece.norm for piece in clips)
    if isinstance(round.sample, PoissonPerClient):
        presence = round.sample.of(client)
        found |= {"rate": presence.rate, "last_round": presence.rounds}
    return found


_SETTINGS = {"noise_multiplier": "noise {:.4g}", "clip": "clip {:.4g}", "rate": "rate {:.4g}", "last_round": "to round {}"}


def settings_in_words(line: Mapping[str, Any]) -> str:
    """How a budget is kept to.

    >>> settings_in_words({"clip": 0.25, "last_round": 40})
    'clip 0.25, to round 40'
    """
    said = [words.format(line[name]) for name, words in _SETTINGS.items() if line.get(name) is not None]
    return ", ".join([*([str(line["law"])] if line.get("law") else []), *said])


def clients_in_words(line: Mapping[str, Any]) -> str:
    """Whose budget it is.

    >>> clients_in_words({"clients": [0, "3-5"], "count": 4})
    '0, 3-5'
    """
    clients, count = line["clients"], line["count"]
    if isinstance(clients, str):
        return f"{clients} ({count:,})"
    return ", ".join(map(str, clients[:6])) + (f", ... ({count:,})" if len(clients) > 6 else "")


def in_words(lines: list[dict[str, Any]]) -> list[str]:
    """A line of text for each budget."""
    heads = ("clients", "budget", "at delta", "spent", "kept by")
    rows = [
        (
            clients_in_words(line),
            f"{line['epsilon']:g}",
            f"{line['delta']:g}",
            "unproven" if line["spent"] is None else rounded_up(line["spent"], 4),
            settings_in_words(line),
        )
        for line in lines
    ]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    return ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in (heads, *rows)]
