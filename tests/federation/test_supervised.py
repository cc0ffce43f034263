"""The port at which a node finds its SuperNode, where another user of the host was quicker."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, AcquireTaskResponse
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

from sfumato.federation.certificates import make_authority, make_server_certificate
from sfumato.federation.flower import supervised
from sfumato.federation.flower.calls import CallFailed, beside, call, runtime
from tests.federation.network import Network, free_port

pytestmark = pytest.mark.processes


class Impostor(BaseHTTPRequestHandler):
    """Gives a task to whoever asks for one: the next question would be the impostor's."""

    asked: list[str] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        content = AcquireTaskResponse(token="a token").SerializeToString()
        self.send_response(200)
        self.send_header("content-type", PROTOBUF_MEDIA_TYPE)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        self.send_error(502)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def listening(folder: Path, secure: bool) -> Iterator[int]:
    Impostor.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Impostor) as server:
        if secure:
            made = make_server_certificate(folder, make_authority(folder), ())
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(made.certificate, made.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            server.handle_error = lambda request, address: None  # type: ignore[method-assign]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "with a certificate of its own"])
def test_whoever_took_the_port_first_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    settings = Network.of(tmp_path, 1).node(0)
    with listening(tmp_path / "impostor", secure) as port:
        monkeypatch.setattr(supervised, "_free_port", lambda: port)
        with supervised.SuperNode(settings) as node, pytest.raises(CallFailed):
            node.task()
    assert not Impostor.asked


class Ended:
    """A SuperNode that ends as soon as it is started."""

    alive, status, log = False, 1, Path("supernode.log")

    def __init__(self, *given: object) -> None:
        pass

    def last_words(self) -> str:
        return ""

    def close(self) -> None:
        pass


class Waits(threading.Event):
    """How long somebody would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return False


def test_one_that_keeps_ending_waits_and_one_that_had_a_question_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = ["", "a token"]
    monkeypatch.setattr(supervised, "Child", Ended)
    monkeypatch.setattr(supervised, "call", lambda method, request: AcquireTaskResponse(token=tokens.pop(0)))
    waits = Waits()
    with supervised.SuperNode(Network.of(tmp_path, 1).node(0)) as node:
        for _ in range(3):
            node.keep(waits)
        assert node.task() is None
        node.keep(waits)
        task = node.task()  # from a server that it must have reached
        assert task is not None
        task.close()
        node.keep(waits)
    assert waits.seconds == [0.0, 1.0, 3.0, 7.0, 0.0]


def test_a_proxy_is_not_asked_for_what_is_on_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = make_authority(tmp_path).certificate
    with listening(tmp_path, secure=False) as port:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        nobody = f"127.0.0.1:{free_port()}"
        for client in (beside(nobody, authority, bytes(32)), runtime(nobody, authority, {})):
            with client, pytest.raises(CallFailed):
                call(client.AcquireTask, AcquireTaskRequest())
    assert not Impostor.asked
