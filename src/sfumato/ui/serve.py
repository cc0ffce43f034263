"""The server, on this machine for this machine."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from sfumato.errors import BadValue
from sfumato.ui.app import application
from sfumato.ui.folder import Runs
from sfumato.ui.guard import HOST, Guard

_PATIENCE = 2  # seconds for open answers when it ends


def serve(runs: Runs, port: int, say: Callable[[str], object]) -> None:
    """Serve the page until Ctrl-C; `say` gets its address, which holds the token."""
    token = secrets.token_urlsafe(32)
    with _bound(port) as listening:
        port = listening.getsockname()[1]
        app = application(runs, lambda: say(f"http://{HOST}:{port}/?token={token}"))
        config = uvicorn.Config(
            Guard(app, port, token), log_level="critical", access_log=False, server_header=False, ws="none",
            timeout_graceful_shutdown=_PATIENCE,
        )  # fmt: skip
        with suppress(KeyboardInterrupt):  # uvicorn closes all that is open, and passes it on
            uvicorn.Server(config).run(sockets=[listening])


def _bound(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise BadValue(f"--port {port}: from 1 to 65535, or 0 for any that is free.")
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError as error:
        listening.close()
        reason = (error.strerror or "it cannot be used").lower()
        raise BadValue(f"--port {port}: {reason}. Give another, or 0 for any that is free.") from None
    listening.listen()
    return listening
