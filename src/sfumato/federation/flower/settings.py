"""What the two sides of the wire need to know. No Flower in here: a settings file can be read where it is not installed."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from sfumato.errors import BadValue
from sfumato.federation.certificates import public_pem

_PORTS = range(1, 2**16)


@dataclass(frozen=True)
class ServerSettings:
    """Where the server listens, by which certificate it is known, and whose nodes it knows.

    `registry` has the public line of each node; a client's number is its place. `folder` is made private: SuperLink's home and
    log lie there. `host` is the address that nodes reach; nothing listens anywhere else.
    """

    folder: Path
    registry: tuple[str, ...]
    certificate: Path
    key: Path
    authority: Path
    host: str = "127.0.0.1"
    port: int = 9092
    poll: float = 0.05

    def __post_init__(self) -> None:
        _check_port(self.port)
        _check_poll(self.poll)
        if not self.registry or len({public_pem(line) for line in self.registry}) < len(self.registry):
            raise BadValue(
                f"a registry of {len(self.registry)} keys is empty or has a key twice. Give each node its own."
            )

    @property
    def address(self) -> str:
        """Where the server itself reaches its SuperLink: an address that stands for all of them is reached on this host."""
        host = self.host
        try:
            if (found := ipaddress.ip_address(host)).is_unspecified:
                host = "127.0.0.1" if found.version == 4 else "::1"
        except ValueError:
            pass  # a name
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True)
class NodeSettings:
    """Which server a node belongs to, by which authority it knows that server, and by which key the server knows the node.

    `folder` is made private: SuperNode's home and log lie there. `poll` is how many seconds may pass before a question is
    noticed: a federation of hundreds of nodes wants it larger, since every look is a request to the server.
    """

    folder: Path
    server: str
    authority: Path
    key: Path
    poll: float = 0.1

    def __post_init__(self) -> None:
        _check_poll(self.poll)
        host, colon, port = self.server.rpartition(":")
        if not (host and colon and port.isdigit()):
            raise BadValue(f"NodeSettings(server={self.server!r}): write host:port, e.g. server.example.org:9092.")
        _check_port(int(port))


def _check_port(port: int) -> None:
    if port not in _PORTS:
        raise BadValue(f"port {port}: a port is from {_PORTS[0]} to {_PORTS[-1]}.")


def _check_poll(poll: float) -> None:
    if not 0.01 <= poll <= 60:
        raise BadValue(f"poll={poll:g}: look every 0.01 to 60 seconds, e.g. 0.1.")
