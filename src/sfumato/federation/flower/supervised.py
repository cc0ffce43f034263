"""A SuperNode that is kept running: one that ends is started again."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from types import TracebackType

from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.runtime import RuntimeHttpClient

from sfumato.federation.certificates import make_authority, make_server_certificate, private_folder, write_private
from sfumato.federation.flower.calls import beside, call
from sfumato.federation.flower.child import Child
from sfumato.federation.flower.settings import NodeSettings

_log = logging.getLogger("sfumato.federation")
_LONGEST_WAIT = 30.0  # seconds before one that keeps ending is started again
_SETTLED = 60.0  # seconds of life after which an end is taken for an accident


class SuperNode:
    """The SuperNode of a node. Its side for tasks listens on this host only, and to whoever knows the secret in its folder.

    It is known by a certificate that is made for it and for nothing else: its port stands in the list of processes before it
    listens there, so another user of this host could be quicker, and would be asking in the server's place.
    """

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._folder = private_folder(settings.folder)
        authority = make_authority(private_folder(self._folder / "beside"))
        self._certificate = make_server_certificate(authority.key.parent, authority, ())
        authority.key.unlink()  # nobody gets another
        self._wait = 0.0
        self._start()

    def _start(self) -> None:
        settings, port = self._settings, _free_port()
        self._secret = secrets.token_bytes(32)
        self._file = write_private(self._folder / "secret", self._secret)
        options = [f"{settings.poll:g}", "--superlink", settings.server, "--root-certificates", str(settings.authority)]
        options += ["--auth-supernode-private-key", str(settings.key), "--isolation", "process"]
        options += ["--host", "127.0.0.1", "--port", str(port), "--superexec-auth-secret-file", str(self._file)]
        shown = self._certificate
        options += ["--ssl-certfile", str(shown.certificate), "--ssl-keyfile", str(shown.key)]
        options += ["--ssl-ca-certfile", str(shown.authority)]
        self._address = f"127.0.0.1:{port}"
        self._child = Child("sfumato.federation.flower.supernode", options, self._folder)
        self._asking = beside(self._address, shown.certificate, self._secret)
        self._began = time.monotonic()

    def keep(self, stop: threading.Event) -> None:
        """Start it again if it has ended: at once, or later and later if it keeps ending."""
        if self._child.alive:
            return
        if time.monotonic() - self._began > _SETTLED:
            self._wait = 0.0
        _log.warning(
            "SuperNode has ended (status %s) and starts again in %g s. Its log is %s, and ends:\n%s",
            self._child.status,
            self._wait,
            self._child.log,
            self._child.last_words(),
        )
        self.close()
        if not stop.wait(self._wait):
            self._wait = min(_LONGEST_WAIT, 2 * self._wait + 1)
            self._start()

    def task(self) -> RuntimeHttpClient | None:
        """The next question, as a client that speaks for the task of answering it; None if there is none. May raise CallFailed."""
        taken = call(self._asking.AcquireTask, AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        if taken.token:
            self._wait = 0.0  # it has reached the server: if it ends now, it is because the server did
        shown = self._certificate.certificate
        return beside(self._address, shown, self._secret, taken.token) if taken.token else None

    def close(self) -> None:
        self._asking.close()
        self._child.close()
        self._file.unlink(missing_ok=True)

    def __enter__(self) -> SuperNode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _free_port() -> int:
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return int(any_socket.getsockname()[1])
