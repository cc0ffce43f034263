"""Which server a node belongs to: the table [server] of node.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.errors import BadValue
from sfumato.federation.certificates import read_signing_key
from sfumato.federation.flower.settings import NodeSettings
from sfumato.federation.settings import read_registry, verifying_keys

_KNOWN = ("address", "authority", "key", "poll", "registry")


@dataclass(frozen=True)
class Signing:
    """What a node needs against an active server: its own key, and the true ones of all others, by client."""

    own: Ed25519PrivateKey
    others: dict[int, bytes]


def signing_path(key: Path) -> Path:
    """Where the key lies that a node signs with: beside the one by which the server knows it."""
    return key.with_suffix(".signs")


def node_signing(config: Path) -> Signing | None:
    """The signing keys that node.toml names; None, if it names no registry of its own."""
    table = tomllib.loads(config.read_text()).get("server", {})
    if "registry" not in table:
        return None
    members = read_registry(config.parent / table["registry"])
    return Signing(read_signing_key(signing_path(config.parent / table["key"])), verifying_keys(members))


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
