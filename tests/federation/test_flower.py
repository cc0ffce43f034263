"""The wire over Flower, with real processes on this host: what arrives, what is dropped, and who cannot get in."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="sfumato[flower] is not installed")

import httpx
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest, RegisterNodeFleetRequest

from sfumato.errors import BadValue
from sfumato.federation.certificates import make_authority, make_node_key
from sfumato.federation.flower import parcel
from sfumato.federation.flower.node import serve
from sfumato.federation.flower.parcel import Parcel, packing
from sfumato.federation.flower.server import FlowerWire
from sfumato.federation.flower.superlink import LONGEST, MOST_OBJECTS
from sfumato.federation.wire import Letter
from tests.federation.network import Network, all_online, answer, echo, threads, until
from tests.federation.rogue import Rogue, fleet, reply_to
from tests.patience import PATIENCE

HONEST, ROGUE = range(2), 2
EXPIRES = 10.0  # seconds of a question that somebody does not answer: the others must have done so by then

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Net:
    network: Network
    wire: FlowerWire
    rogue: Rogue


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    """Two honest nodes and a rogue."""
    network = Network.of(tmp_path_factory.mktemp("flower"), 3)
    with FlowerWire(network.server) as wire, threads(network, HONEST):
        rogue = Rogue(network, ROGUE)
        all_online(wire, range(3))
        yield Net(network, wire, rogue)
        rogue.client.close()


def beside(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_letters_go_there_and_back_bit_by_bit(net: Net) -> None:
    kinds = (torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16)
    tensors = {str(kind): torch.arange(7).to(kind) for kind in kinds} | {"nothing": torch.empty(0, 4)}
    letters = {client: Letter("echo", {"client": client, "tenth": 0.1}, tensors) for client in HONEST}
    replies = dict(net.wire.ask(letters, PATIENCE))
    assert replies.keys() == letters.keys()
    for client, reply in replies.items():
        expected = Letter("ok", {"client": client, "tenth": 0.1, "asked": "echo"}, tensors)
        assert reply.to_bytes() == expected.to_bytes()


def test_rows_of_many_megabytes_go_there_and_back(net: Net) -> None:
    rows = {client: torch.arange(5_000_000, dtype=torch.float32) + client for client in HONEST}
    replies = dict(net.wire.ask({client: Letter("echo", {}, {"row": row}) for client, row in rows.items()}, PATIENCE))
    assert all(torch.equal(replies[client].tensors["row"], row) for client, row in rows.items())


def test_an_error_leaves_as_a_code_without_text(net: Net) -> None:
    ((client, reply),) = net.wire.ask({0: Letter("raise", {"secret": "of the owner"})}, PATIENCE)
    assert (client, reply.to_bytes()) == (0, Letter("failed").to_bytes())
    assert dict(net.wire.ask({0: echo()}, PATIENCE)).keys() == {0}


def test_a_late_reply_is_dropped_and_the_next_is_not(net: Net) -> None:
    replies = dict(net.wire.ask({0: Letter("slow", {"seconds": 2 * EXPIRES}), 1: echo(question=1)}, EXPIRES))
    assert replies.keys() == {1}
    replies = dict(net.wire.ask({0: echo(question=2), 1: echo(question=2)}, PATIENCE))
    assert {client: reply.facts["question"] for client, reply in replies.items()} == {0: 2, 1: 2}


def test_whoever_stops_listening_may_ask_again(net: Net) -> None:
    replies = net.wire.ask({0: echo(question=1), 1: Letter("slow", {"seconds": 1.0})}, PATIENCE)
    assert next(replies)[0] == 0
    replies.close()  # type: ignore[attr-defined]
    assert {reply.facts["question"] for _, reply in net.wire.ask({0: echo(question=2)}, PATIENCE)} == {2}


def test_nobody_is_asked_who_is_not_there(net: Net) -> None:
    assert list(net.wire.ask({}, 10.0)) == []
    with pytest.raises(BadValue, match="no client 3"):
        net.wire.ask({3: echo()}, 1.0)


def test_a_reply_counts_once(net: Net) -> None:
    def twice() -> None:
        header, number, _ = net.rogue.receive()
        net.rogue.push(reply_to(header, number, Letter("ok", {"try": 1})))
        net.rogue.push(reply_to(header, number, Letter("ok", {"try": 2})))

    thread = beside(twice)
    replies = list(net.wire.ask({ROGUE: echo(), 1: Letter("slow", {"seconds": 1.0})}, PATIENCE))
    thread.join()
    assert sorted(client for client, _ in replies) == [1, ROGUE]
    assert dict(replies)[ROGUE].facts == {"try": 1}


def test_an_old_reply_is_dropped(net: Net) -> None:
    old: list[bytes] = []

    def answer_then_replay() -> None:
        header, number, _ = net.rogue.receive()
        old.append(number)
        net.rogue.push(reply_to(header, number, Letter("ok", {"question": 1})))
        header, _, _ = net.rogue.receive()
        net.rogue.push(reply_to(header, old[0], Letter("ok", {"question": 1})))

    thread = beside(answer_then_replay)
    assert dict(net.wire.ask({ROGUE: echo()}, PATIENCE)).keys() == {ROGUE}
    assert dict(net.wire.ask({ROGUE: echo(), 0: echo()}, EXPIRES)).keys() == {0}
    thread.join()


@pytest.mark.parametrize("what", ["objects missing", "no letter", "cut", "other records", "an error", "two heads"])
def test_a_broken_reply_is_dropped(net: Net, what: str) -> None:
    def broken() -> None:
        header, number, letter = net.rogue.receive()
        whole = reply_to(header, number, Letter("ok", {}, letter.tensors))
        piece = whole.content["0"]
        if what == "objects missing":
            net.rogue.push(whole, objects=1)
            return
        if what == "no letter":
            whole.content = RecordDict({"head": ConfigRecord({"number": number, "head": b"\xff" * 9})})
        elif what == "cut":
            whole.content["0"] = ConfigRecord({"piece": bytes(piece["piece"])[:-3]})  # type: ignore[arg-type]
        elif what == "other records":
            whole.content["more"] = ConfigRecord({"piece": b""})
        elif what == "two heads":
            whole.content["0"] = whole.content["head"]
        else:
            whole = Message(Error(0, "text that nobody asked for"), reply_to=header)
        net.rogue.push(whole)

    thread = beside(broken)
    assert dict(net.wire.ask({ROGUE: echo(), 0: echo()}, EXPIRES)).keys() == {0}
    thread.join()


def test_no_node_answers_for_another(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that was told the name of the other's question: the number in it is the other's alone."""
    run, posted = net.wire._run, list[Parcel]()
    post = run.post
    monkeypatch.setattr(run, "post", lambda parcel: posted.append(parcel) or post(parcel))

    def forge() -> None:
        header, number, _ = net.rogue.receive()
        name = next(parcel.name for parcel in posted if parcel.message.metadata.dst_node_id == run.nodes[1])
        forged = {"src_node_id": run.nodes[1], "reply_to_message_id": name}
        with pytest.raises(httpx.HTTPStatusError, match="403"):
            net.rogue.push(reply_to(header, number, Letter("ok", {"by": "rogue"}), **forged))
        net.rogue.push(reply_to(header, number, Letter("ok", {"by": "rogue"}), reply_to_message_id=name))

    thread = beside(forge)
    replies = dict(net.wire.ask({0: echo(), 1: Letter("slow", {"seconds": 3.0}), ROGUE: echo()}, EXPIRES))
    thread.join()
    assert replies.keys() == {0, 1} and replies[1].facts["asked"] == "slow"


def test_no_node_asks_another(net: Net) -> None:
    """A question of a node's, in the server's name and to a node whose number it was told, would be answered and would count."""
    run = net.wire._run
    with packing() as packer:
        forged = packer.question(Letter("slow", {"seconds": 0.0}), b"0" * 16, run.number, run.nodes[0], 60.0)
    request = PushMessagesRequest(
        node=net.rogue.node, messages_list=[forged.message], message_object_trees=[forged.tree]
    )
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        net.rogue.client.PushMessages(request)
    assert dict(net.wire.ask({0: echo()}, PATIENCE)).keys() == {0}


def test_a_reply_of_more_objects_than_a_letter_has_is_not_taken(net: Net) -> None:
    def many() -> None:
        header, number, letter = net.rogue.receive()
        whole = reply_to(header, number, Letter("ok", {}, letter.tensors))
        for place in range(MOST_OBJECTS):
            whole.content[f"more {place}"] = ConfigRecord({"piece": place.to_bytes(2, "big")})
        with pytest.raises(httpx.HTTPStatusError, match="413"):
            net.rogue.push(whole)

    thread = beside(many)
    assert dict(net.wire.ask({ROGUE: echo(), 0: echo()}, EXPIRES)).keys() == {0}
    thread.join()
    assert MOST_OBJECTS == parcel._MOST_OBJECTS


@pytest.mark.parametrize(
    "path",
    [
        "/docs",
        "/openapi.json",
        "/health",
        "/v1/control/list-nodes",
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
    ],
)
def test_only_what_is_for_nodes_is_open(net: Net, path: str) -> None:
    with secure(net.network.certificate.authority) as client:
        for secret in ({}, {"sfumato-secret": ""}, {"sfumato-secret": "0" * 64}):
            assert client.post(f"https://localhost:{net.network.port}{path}", headers=secret).status_code == 404


def test_a_request_is_bounded(net: Net) -> None:
    url = f"https://localhost:{net.network.port}/v1/fleet/pull-messages"
    with secure(net.network.certificate.authority) as client:
        assert client.post(url, content=bytes(LONGEST + 1)).status_code == 413
        assert client.post(url, content=iter([b"of no known length"])).status_code == 411


def test_an_unknown_key_cannot_join(net: Net, tmp_path: Path) -> None:
    stranger = make_node_key(tmp_path / "key").private
    client, key = fleet(f"localhost:{net.network.port}", net.network.certificate.authority, stranger)
    for call, request in (
        (client.ActivateNode, ActivateNodeRequest(public_key=key, heartbeat_interval=30)),
        (client.RegisterNode, RegisterNodeFleetRequest(public_key=key)),
        (client.PullMessages, PullMessagesRequest(node=net.rogue.node)),
    ):
        with pytest.raises(httpx.HTTPStatusError) as refused:
            call(request)  # type: ignore[operator]
        assert 400 <= refused.value.response.status_code < 500
    client.close()


def test_a_plain_connection_and_another_authority_are_refused(net: Net, tmp_path: Path) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.post(f"http://127.0.0.1:{net.network.port}/v1/fleet/pull-messages")
    with secure(make_authority(tmp_path).certificate) as client, pytest.raises(httpx.ConnectError, match="CERTIFICATE"):
        client.post(f"https://localhost:{net.network.port}/v1/fleet/pull-messages")


@pytest.mark.parametrize("what", ["an unknown key", "another authority"])
def test_such_a_supernode_ends_and_says_so(
    net: Net, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    key, authority = make_node_key(tmp_path / "key").private, make_authority(tmp_path / "authority").certificate
    known = net.network.node(0)
    changed = {"key": key} if what == "an unknown key" else {"authority": authority}
    settings, stop = replace(known, folder=tmp_path / "node", **changed), threading.Event()
    thread = beside(lambda: serve(answer, settings, stop))
    until(lambda: "SuperNode has ended (status 1)" in caplog.text)
    stop.set()
    thread.join()
    assert net.wire.online() >= set(HONEST)  # the rogue gives no sign of life


def secure(authority: Path) -> httpx.Client:
    return httpx.Client(verify=ssl.create_default_context(cafile=str(authority)))
