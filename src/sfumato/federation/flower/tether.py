"""What every child of ours does first: read its secret, and end when its parent does."""

from __future__ import annotations

import os
import signal
import threading
import time

_INPUT = 0
_PATIENCE = 3.0  # seconds


def tether() -> str:
    """The first line of the standard input; when that input ends, so does this process, orderly if it can be."""
    secret = b""
    while not secret.endswith(b"\n") and (byte := os.read(_INPUT, 1)):  # a buffer would lock at the end
        secret += byte

    def wait() -> None:
        while os.read(_INPUT, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_PATIENCE)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    return secret.decode().strip()
