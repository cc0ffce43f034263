"""Killed at every place: nodes, SuperNodes, SuperLink. Training can go on, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="sfumato[flower] is not installed")
if not Path("/proc/self/task").exists():
    pytest.skip("looks for processes in /proc", allow_module_level=True)

from sfumato.federation.flower.server import FlowerWire
from sfumato.federation.wire import Letter, WireLost
from tests.federation.network import Network, all_online, children, echo, running, start, until
from tests.patience import PATIENCE

pytestmark = pytest.mark.processes

NODES = range(2)


class Federation:
    """A server in this process, and nodes that can be killed."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.wire = FlowerWire(network.server)
        self.nodes = [start(network, number) for number in NODES]
        all_online(self.wire, NODES)

    def supernode(self, number: int) -> int:
        (pid,) = children(self.nodes[number].pid)
        return pid

    def restart(self, number: int) -> None:
        self.nodes[number] = start(self.network, number)

    def answers(self, deadline: float = PATIENCE) -> set[int]:
        return dict(self.wire.ask({number: echo() for number in NODES}, deadline)).keys() | set()

    def close(self) -> None:
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            node.wait()
        self.wire.close()


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    found = Federation(Network.of(tmp_path_factory.mktemp("faults"), len(NODES)))
    yield found
    found.close()


def test_a_node_is_killed_in_the_middle_of_a_question(federation: Federation) -> None:
    supernode = federation.supernode(1)
    replies = federation.wire.ask({0: echo(), 1: Letter("slow", {"seconds": 300.0})}, 10.0)
    assert next(replies)[0] == 0
    federation.nodes[1].kill()
    federation.nodes[1].wait()
    assert list(replies) == []
    until(lambda: not running(supernode))  # it does not outlive its node
    federation.restart(1)
    assert federation.answers() == {0, 1}


def test_a_supernode_is_killed_and_comes_back(federation: Federation) -> None:
    before = federation.supernode(0)
    os.kill(before, signal.SIGKILL)
    until(lambda: before not in children(federation.nodes[0].pid) and bool(children(federation.nodes[0].pid)))
    until(lambda: federation.answers(20.0) == {0, 1})


def test_superlink_is_killed_and_started_again(federation: Federation) -> None:
    replies = federation.wire.ask({0: echo(), 1: Letter("slow", {"seconds": 2.0})}, PATIENCE)
    assert next(replies)[0] == 0
    os.kill(federation.wire._child.pid, signal.SIGKILL)
    with pytest.raises(WireLost, match=r"has ended \(status -9\).*restart\(\)"):
        list(replies)
    with pytest.raises(WireLost):
        federation.wire.online()
    federation.wire.restart()
    assert federation.answers() == {0, 1}


def test_a_node_that_is_told_to_end_says_good_bye(federation: Federation) -> None:
    supernode = federation.supernode(1)
    for number in (signal.SIGTERM, signal.SIGINT):
        federation.nodes[1].send_signal(number)
        federation.nodes[1].wait()
        assert not running(supernode)
        until(lambda: federation.wire.online() == {0}, 15.0)  # without a word, only after 20 s
        federation.restart(1)
        all_online(federation.wire, NODES)
        supernode = federation.supernode(1)


def test_a_port_that_is_taken_is_told(federation: Federation, tmp_path: Path) -> None:
    network = Network.of(tmp_path, 1)
    taken = Network(network.folder, network.certificate, network.keys, federation.network.port)
    with pytest.raises(WireLost, match="address already in use"):
        FlowerWire(taken.server)


SERVER = """
import sys, time
from pathlib import Path
from sfumato.federation.flower.server import FlowerWire
from tests.federation.network import Network, all_online, echo, start
from tests.patience import PATIENCE
folder, home = map(Path, sys.argv[1:3])
network = Network.of(folder, 1)
node = start(network, 0, home)
with FlowerWire(network.server) as wire:
    all_online(wire, range(1))
    print(len(list(wire.ask({0: echo()}, PATIENCE))), node.pid, wire._child.pid, flush=True)
    if sys.argv[3] == "killed":
        time.sleep(PATIENCE)
    node.terminate()
    node.wait()
"""


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_nothing_is_left_behind(tmp_path: Path, how: str) -> None:
    home, folder = tmp_path / "home", tmp_path / "federation"
    home.mkdir()
    folder.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(folder), str(home), how],
        env=dict(os.environ, HOME=str(home)),
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert server.stdout is not None
    replied, node, superlink = map(int, server.stdout.readline().split())
    (supernode, *_) = children(node) or [0]
    if how == "killed":
        server.kill()
        os.kill(node, signal.SIGKILL)
    server.wait()
    server.stdout.close()
    assert replied == 1
    until(lambda: not any(map(running, [node, superlink, supernode])))
    assert list(home.iterdir()) == []
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.name in {"superlink", "supernode", "home"}:
            assert mode == 0o700, path
        if path.suffix in {".log", ".key"} or path.name == "secret":
            assert mode == 0o600, path
    assert not [path for path in folder.rglob("*") if path.suffix in {".db", ".sqlite", ".fab"}]
