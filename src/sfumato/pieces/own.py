"""Settings that some clients have for themselves: a mapping from client to setting, kept as groups of clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sfumato.errors import BadValue

Own: TypeAlias = tuple[tuple[tuple[int, ...], Any], ...]  # clients by number, and the setting that they share


def grouped(given: Any, who: str) -> Own:
    """Clients with equal settings together, from a mapping or from pairs of clients and setting.

    >>> grouped({3: 0.5, 1: 0.5, 2: 0.1}, "Clip")
    (((1, 3), 0.5), ((2,), 0.1))
    """
    groups: dict[Any, list[int]] = {}
    for clients, setting in given.items() if isinstance(given, Mapping) else given:
        groups.setdefault(setting, []).extend((clients,) if isinstance(clients, int) else clients)
    named = sorted(client for clients in groups.values() for client in clients)
    if any(client < 0 for client in named) or len(set(named)) < len(named):
        raise BadValue(f"{who}: {named} are the clients with their own settings. Name each once, by number.")
    return tuple((tuple(sorted(clients)), setting) for setting, clients in groups.items() if clients)


def by_number(own: Own) -> dict[int, Any]:
    """Each named client's own setting."""
    return {client: setting for clients, setting in own for client in clients}


def clients_of(own: Own) -> tuple[tuple[int, ...], ...]:
    """The groups, without their settings."""
    return tuple(clients for clients, _ in own)
