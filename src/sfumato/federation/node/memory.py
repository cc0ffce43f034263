"""What a client remembers between rounds: it never leaves its node.

A round begins with what was kept after the last round before it in which the client took part, so a round that is asked for
again begins where it began. What was trained waits until the new parameters are known; only then it is kept. Files are written
whole or not at all, for the owner's eyes only.
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
_VERSIONS = 3  # of what was kept: a server goes back by no more than the round that it had not stored
_KEPT = re.compile(r"kept-(\d+)\.safetensors")


@dataclass(frozen=True)
class Memory:
    """What is remembered of one run, in a folder of its own."""

    folder: Path

    def before(self, round: int) -> dict[str, torch.Tensor]:
        """What was kept when a round began; nothing, before the first."""
        earlier = [number for number in self._kept() if number < round]
        return dict(load_file(self._file("kept", max(earlier)))) if earlier else {}

    def trained(self, round: int, attempt: int) -> dict[str, torch.Tensor] | None:
        """What waits for the new parameters of a round."""
        path = self._file(f"trained-{attempt}", round)
        return dict(load_file(path)) if path.exists() else None

    def wait(self, round: int, attempt: int, rows: Rows) -> None:
        """Store what was trained in a round, in place of whatever waited before."""
        self._write(self._file(f"trained-{attempt}", round), rows)
        for other in self.folder.glob("trained-*.safetensors"):
            if other != self._file(f"trained-{attempt}", round):
                other.unlink()

    def keep(self, round: int, rows: Rows) -> None:
        """Store what the client remembers after a round."""
        self._write(self._file("kept", round), rows)
        for number in sorted(self._kept())[:-_VERSIONS]:
            self._file("kept", number).unlink()

    def _write(self, path: Path, rows: Rows) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, save({name: row.contiguous().clone() for name, row in rows.items()}), mode=0o600)

    def _file(self, kind: str, round: int) -> Path:
        return self.folder / f"{kind}-{round}.safetensors"

    def _kept(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return [int(found[1]) for file in self.folder.iterdir() if (found := _KEPT.fullmatch(file.name))]
