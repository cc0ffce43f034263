"""The last reply of a node in each run, so that a request which arrives again gets the same reply, and costs nothing again.

It is kept until the run's next round, for the owner's eyes only. Whatever is not that very request is a new one: it is reserved,
computed with fresh noise, and counts (PRIVACY R5). Messages of a secure aggregation are never kept: without its secrets, which are
in memory only, a client has dropped out of a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sfumato.digest import digest
from sfumato.engine.checkpoint import write_atomically
from sfumato.federation.wire import Letter


@dataclass(frozen=True)
class Replies:
    """The stored replies, in a folder of their own: behind the digest of its request, a file holds the reply as it was sent."""

    folder: Path

    def find(self, run: str, request: Letter) -> Letter | None:
        """The reply to this very request, if it was the last one of the run."""
        path, name = self._file(run), request.digest.encode()
        content = path.read_bytes() if path.exists() else b""
        return Letter.from_bytes(content[len(name) :]) if content.startswith(name) else None

    def keep(self, run: str, request: Letter, reply: Letter) -> None:
        """Store a reply in place of the run's last one; on disk before it is sent."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self._file(run), request.digest.encode() + reply.to_bytes(), mode=0o600)

    def _file(self, run: str) -> Path:
        return self.folder / f"{digest(run)}.reply"
