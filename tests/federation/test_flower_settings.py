"""What the two sides of the wire are told, and what cannot be meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sfumato.errors import BadValue
from sfumato.federation.certificates import make_node_key
from sfumato.federation.flower.settings import NodeSettings, ServerSettings

HERE = Path("nowhere")


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_node_key(tmp_path_factory.mktemp("key") / "key").public


def server(line: str, **changed: Any) -> ServerSettings:
    known: dict[str, Any] = {"folder": HERE, "registry": (line,), "certificate": HERE, "key": HERE, "authority": HERE}
    return ServerSettings(**(known | changed))


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.7", "10.0.0.7:9092"),
        ("server.example.org", "server.example.org:9092"),
        ("0.0.0.0", "127.0.0.1:9092"),
        ("::", "[::1]:9092"),
        ("fd00::7", "[fd00::7]:9092"),
    ],
)
def test_a_server_reaches_itself_where_it_listens(line: str, host: str, address: str) -> None:
    assert server(line, host=host).address == address


def test_a_key_stands_once_in_a_registry(line: str) -> None:
    for registry in [(), (line, line), (line, line + " with a comment")]:
        with pytest.raises(BadValue, match="registry"):
            server(line, registry=registry)
    with pytest.raises(BadValue, match="no public key"):
        server(line, registry=("ecdsa-sha2-nistp384",))


@pytest.mark.parametrize("changed", [{"port": 0}, {"port": 2**16}, {"poll": 0.0}, {"poll": 61.0}])
def test_numbers_are_checked(line: str, changed: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match="port|poll"):
        server(line, **changed)


@pytest.mark.parametrize("address", ["", "server.example.org", ":9092", "server:port", "server:0", "server:70000"])
def test_a_node_wants_host_and_port(address: str) -> None:
    with pytest.raises(BadValue, match="port"):
        NodeSettings(HERE, address, HERE, HERE)
