"""What a client remembers between rounds: it never leaves its node.

A round begins with what was kept after the last round before it in which the client took part, so a round that is asked for
again begins where it began. What was trained waits until the new parameters are known; only then it is kept. Files are written
whole or not at all, for the owner's eyes only.

A server that goes back behind a round that it had released, as from a copy of its folder, and then asks for a later one, finds what
was kept before it went back. Nothing private rests on it: what is remembered is part of every answer's key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from sfumato.engine.checkpoint import write_atomically

Rows = Mapping[str, torch.Tensor]
_VERSIONS = 3  # of each: a server goes back by no more than the round that it had not stored
_FILE = re.compile(r"(kept|trained)-(\d+)-(\d+)\.safetensors")


@dataclass(frozen=True)
class Memory:
    """What is remembered of one run, in a folder of its own."""

    folder: Path

    def before(self, round: int) -> dict[str, torch.Tensor]:
        """What was kept when a round began; nothing, before the first."""
        earlier = [number for _, number in self._versions("kept") if number < round]
        return dict(load_file(self._file("kept", 0, max(earlier)))) if earlier else {}

    def trained(self, round: int, attempt: int) -> dict[str, torch.Tensor] | None:
        """What waits for the new parameters of a round."""
        path = self._file("trained", attempt, round)
        return dict(load_file(path)) if path.exists() else None

    def wait(self, round: int, attempt: int, rows: Rows) -> None:
        """Store what was trained in a round."""
        self._write("trained", attempt, round, rows)

    def keep(self, round: int, rows: Rows) -> None:
        """Store what the client remembers after a round, whichever attempt gave it."""
        self._write("kept", 0, round, rows)

    def _write(self, kind: str, attempt: int, round: int, rows: Rows) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = save({name: row.contiguous().clone() for name, row in rows.items()})
        write_atomically(self._file(kind, attempt, round), content, mode=0o600)
        for version in self._versions(kind)[:-_VERSIONS]:
            if version != (attempt, round):
                self._file(kind, *version).unlink()

    def _file(self, kind: str, attempt: int, round: int) -> Path:
        return self.folder / f"{kind}-{attempt}-{round}.safetensors"

    def _versions(self, kind: str) -> list[tuple[int, int]]:
        """Attempt and round of every such file, the last ones last."""
        files = self.folder.iterdir() if self.folder.is_dir() else ()
        names = (found for file in files if (found := _FILE.fullmatch(file.name)) and found[1] == kind)
        return sorted((int(found[2]), int(found[3])) for found in names)
