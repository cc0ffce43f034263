"""Requests to Flower's processes: no proxy sees them, one certificate is trusted, and every failure is one kind of error."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="sfumato[flower] is not installed")

from flwr.proto.control_pb2 import ListNodesRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest

from sfumato.federation.certificates import Authority, ServerCertificate, make_authority, make_server_certificate
from sfumato.federation.flower.calls import CallFailed, beside, call, control


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority") / "new")


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> ServerCertificate:
    return make_server_certificate(tmp_path_factory.mktemp("server") / "new", authority, ["server.example.org"])


def listening(context: ssl.SSLContext | None) -> Iterator[str]:
    """A server that refuses everything."""
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    if context:
        found.socket = context.wrap_socket(found.socket, server_side=True)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    yield f"127.0.0.1:{found.server_address[1]}"
    found.shutdown()
    thread.join()
    found.server_close()


@pytest.fixture
def secure(server: ServerCertificate) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    yield from listening(context)


def failed(address: str, certificate: Path) -> CallFailed:
    with control(address, certificate, {}) as client, pytest.raises(CallFailed) as error:
        call(client.ListNodes, ListNodesRequest())
    return error.value


def test_a_proxy_is_not_heeded(secure: str, server: ServerCertificate, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with beside(secure, server.certificate, b"secret") as client, pytest.raises(CallFailed) as error:
        call(client.AcquireTask, AcquireTaskRequest())
    assert error.value.refused  # by the server: it was reached


def test_a_certificate_is_known_whatever_its_names(secure: str, server: ServerCertificate) -> None:
    assert failed(secure, server.certificate).refused


def test_another_of_the_same_authority_is_not(secure: str, authority: Authority, tmp_path: Path) -> None:
    other = make_server_certificate(tmp_path, authority, ["server.example.org"])
    error = failed(secure, other.certificate)
    assert not error.refused and "CERTIFICATE_VERIFY_FAILED" in str(error)


def test_nobody_there_is_a_failure_too(server: ServerCertificate) -> None:
    error = failed("127.0.0.1:9", server.certificate)
    assert not error.refused and "ListNodes" in str(error)
