"""Flower's own processes, as children that leave nothing behind: neither a process nor a file outside of their folder.

A child ends when its parent does, however that ends: it holds the reading end of a pipe whose other end is here, and ends when
that is closed. Its first line there is a secret, which therefore stands in no environment and on no command line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sfumato.federation.certificates import private_folder, write_private

_PATIENCE = 8.0  # seconds for an orderly end: Flower gives itself 5


class Child:
    """One process, in a session of its own, with a log in its private folder."""

    def __init__(self, module: str, arguments: Sequence[str], folder: Path, secret: str = "") -> None:
        name = module.rpartition(".")[2]
        self.log = write_private(folder / f"{name}.log", b"")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(private_folder(folder / "home")),
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        with suppress(BrokenPipeError):  # it ended at once, which `alive` tells
            self._pipe.write(secret.encode() + b"\n")
            self._pipe.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def last_words(self, size: int = 2000) -> str:
        """The end of its log, for whoever has to mend it."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - size))
            return file.read().decode(errors="replace").strip()

    def close(self) -> None:
        """Ask it to end; if it does not, end it and whatever it started in its session."""
        if self.alive:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)  # it lives, so the number of its session is still its own
                self._process.wait()
        with suppress(BrokenPipeError):
            self._pipe.close()


def _environment(home: Path) -> dict[str, str]:
    """This process's environment without a word of Flower's, and Flower kept to itself: no telemetry, no look for updates, no
    installation of what an app asks for, its home in a private folder."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    return own | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONUNBUFFERED": "1",
    }
