"""Which server a node belongs to: the table [server] of node.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

from sfumato.errors import BadValue
from sfumato.federation.flower.settings import NodeSettings

_KNOWN = ("address", "authority", "key", "poll")


def node_settings(config: Path) -> NodeSettings:
    """What node.toml says of the server; relative paths are relative to the file, which was read before."""
    table = tomllib.loads(config.read_text()).get("server", {})
    if missing := [name for name in _KNOWN[:3] if not isinstance(table.get(name), str)]:
        raise BadValue(
            f'{config}: [server] lacks {" and ".join(missing)}. Write address = "host:port", and the files authority and key.'
        )
    if strangers := sorted(table.keys() - set(_KNOWN)):
        raise BadValue(
            f"{config}: [server] has {strangers[0]!r}, which nothing here knows. It has {', '.join(_KNOWN)}."
        )
    for name in ("authority", "key"):
        if not (config.parent / table[name]).is_file():
            raise BadValue(f"{config}: server.{name} names {config.parent / table[name]}, which is not there.")
    home = config.parent
    folder = home / "flower"
    poll = float(table.get("poll", NodeSettings.poll))
    return NodeSettings(folder, table["address"], home / table["authority"], home / table["key"], poll)
