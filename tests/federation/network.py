"""A small federation on this host: TLS, node keys, free ports, nodes as threads or as processes of their own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from sfumato.federation.certificates import (
    NodeKey,
    ServerCertificate,
    make_authority,
    make_node_key,
    make_server_certificate,
)
from sfumato.federation.flower.settings import NodeSettings, ServerSettings
from sfumato.federation.wire import Letter, Wire
from tests.patience import PATIENCE


def free_port() -> int:
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return int(any_socket.getsockname()[1])


@dataclass(frozen=True)
class Network:
    """Who there is, and where; nothing runs yet."""

    folder: Path
    certificate: ServerCertificate
    keys: tuple[NodeKey, ...]
    port: int

    @staticmethod
    def of(folder: Path, nodes: int) -> Network:
        authority = make_authority(folder / "authority")
        certificate = make_server_certificate(folder / "server", authority, ["localhost"])
        keys = tuple(make_node_key(folder / f"node-{number}" / "node.key") for number in range(nodes))
        return Network(folder, certificate, keys, free_port())

    @property
    def server(self) -> ServerSettings:
        return ServerSettings(
            folder=self.folder / "superlink",
            registry=tuple(key.public for key in self.keys),
            certificate=self.certificate.certificate,
            key=self.certificate.key,
            authority=self.certificate.authority,
            port=self.port,
        )

    def node(self, number: int) -> NodeSettings:
        return NodeSettings(
            folder=self.folder / f"node-{number}" / "supernode",
            server=f"localhost:{self.port}",
            authority=self.certificate.authority,
            key=self.keys[number].private,
        )


def answer(letter: Letter) -> Letter:
    """What a letter asks for: itself, itself later, an error, or nothing that could be sent."""
    if letter.kind == "raise":
        raise ValueError(f"a secret of the owner: {letter.facts}")
    if letter.kind == "slow":
        time.sleep(float(letter.facts["seconds"]))
    return Letter("ok", {**letter.facts, "asked": letter.kind}, letter.tensors)


@contextlib.contextmanager
def threads(network: Network, numbers: range) -> Iterator[None]:
    """Nodes that answer in threads of this process."""
    from sfumato.federation.flower.node import serve

    stop = threading.Event()
    started = [threading.Thread(target=serve, args=(answer, network.node(number), stop)) for number in numbers]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in started:
            thread.join()


def start(network: Network, number: int, home: Path | None = None) -> subprocess.Popen[bytes]:
    """A node as a process of its own."""
    settings = network.node(number)
    words = [settings.folder, settings.server, settings.authority, settings.key]
    environment = dict(os.environ) | ({"HOME": str(home)} if home else {})
    return subprocess.Popen(
        [sys.executable, "-m", "tests.federation.network", *map(str, words)],
        cwd=Path(__file__).parent.parent.parent,
        env=environment,
    )


def until(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait for something that will be so; a test that waits in vain has failed."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"still not so after {seconds:g} s"
        time.sleep(0.05)


def all_online(wire: Wire, numbers: range) -> None:
    until(lambda: wire.online() >= set(numbers))


def echo(**facts: int | float | str) -> Letter:
    return Letter("echo", facts, {"row": torch.arange(5.0)})


def children(pid: int) -> list[int]:
    """The processes that this one started, as the system knows them."""
    return [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]


def running(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    from sfumato.federation.flower.node import serve

    serve(answer, NodeSettings(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
