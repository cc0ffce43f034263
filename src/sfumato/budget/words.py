"""Lines about budgets as people read them; what they are made of is in run.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.guarantee import rounded_up

_SETTINGS = {
    "noise_multiplier": "noise {:.4g}",
    "clip": "clip {:.4g}",
    "rate": "rate {:.4g}",
    "last_round": "to round {}",
}


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


def in_words(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line of text for each budget."""
    heads = ("clients", "budget", "at delta", "spent", "kept by")
    rows = [
        (
            clients_in_words(line),
            f"{line['epsilon']:g}",
            rounded_up(line["delta"], 3),
            rounded_up(line["spent"], 4),
            settings_in_words(line),
        )
        for line in lines
    ]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    return [
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in (heads, *rows)
    ]
