"""What every child of ours does first: read its secret, and end when its parent does."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

_PATIENCE = 3.0


def tether() -> str:
    """The first line of the standard input; when that input ends, so does this process, orderly if it can be."""
    secret = sys.stdin.buffer.readline().decode().strip()

    def wait() -> None:
        while sys.stdin.buffer.read(1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_PATIENCE)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    return secret
