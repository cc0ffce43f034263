"""What a run needs to go on after a crash: written to a temporary file, synced, then renamed, so it is whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save

from sfumato.engine.plan import Plan
from sfumato.errors import BadValue, DataError
from sfumato.key import Key

_CHECKPOINT, _SECRET = "checkpoint.safetensors", "secret.key"
FILES = (_CHECKPOINT, _SECRET, "ledger.sqlite")  # any of them means that there is a run


@dataclass(frozen=True)
class Checkpoint:
    """The state after `round` rounds."""

    round: int
    attempt: int
    description: str
    plan: Plan
    params: torch.Tensor
    state: dict[str, torch.Tensor]
    memory: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)  # what clients keep, by client and name
    kept: dict[str, torch.Tensor] = field(default_factory=dict)  # what pieces keep, by place

    def to(self, device: str) -> Checkpoint:
        """The same on a device: what was read, and what pieces begin with, is on the CPU."""
        state, kept = ({name: value.to(device) for name, value in held.items()} for held in (self.state, self.kept))
        memory = {client: {name: row.to(device) for name, row in rows.items()} for client, rows in self.memory.items()}
        return replace(self, params=self.params.to(device), state=state, memory=memory, kept=kept)

    def write(self, folder: Path) -> None:
        facts: dict[str, Any] = {"round": self.round, "attempt": self.attempt, "description": self.description}
        facts["plan"] = asdict(self.plan)
        tensors = {"params": self.params.cpu()}
        for word, held in (("state.", self.state), ("kept.", self.kept)):
            tensors |= {word + name: value.cpu().contiguous() for name, value in held.items()}
        if self.memory:
            names = sorted({name for rows in self.memory.values() for name in rows})
            facts["clients"] = {
                name: [client for client, rows in self.memory.items() if name in rows] for name in names
            }
            for name, clients in facts["clients"].items():
                tensors["memory." + name] = torch.stack([self.memory[client][name] for client in clients]).cpu()
        write_atomically(folder / _CHECKPOINT, save(tensors, {"sfumato": json.dumps(facts)}), mode=0o600)

    @staticmethod
    def read(folder: Path) -> Checkpoint | None:
        path = folder / _CHECKPOINT
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                facts: dict[str, Any] = json.loads(file.metadata()["sfumato"])
                tensors: Mapping[str, torch.Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except Exception as error:
            raise DataError(f"{path} cannot be read: {error}. Start a new run in another folder.") from error
        state, kept = (
            {name.removeprefix(word): value for name, value in tensors.items() if name.startswith(word)}
            for word in ("state.", "kept.")
        )
        memory: dict[int, dict[str, torch.Tensor]] = {}
        for name, clients in facts.pop("clients", {}).items():
            for client, row in zip(clients, tensors["memory." + name], strict=True):
                memory.setdefault(client, {})[name] = row
        facts["plan"] = Plan(**facts["plan"])
        return Checkpoint(**facts, params=tensors["params"], state=state, memory=memory, kept=kept)


def make_folder(folder: Path) -> None:
    """Make a folder, with those above it, if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadValue(f"the folder {folder} cannot be made: {error.strerror}. Give another one.") from None


def write_atomically(path: Path, content: bytes | str, mode: int = 0o644) -> None:
    """The file has the old content or the new, never a part; it is on disk when this returns."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    data = content.encode() if isinstance(content, str) else content
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def root_key(folder: Path | None, make: Callable[[], bytes]) -> Key:
    """The run's root: read from the folder's secret file, or made and written there for its owner's eyes only."""
    if folder is None:
        return Key.from_secret(make())
    path = folder / _SECRET
    if not path.exists():
        write_atomically(path, make(), mode=0o600)
    try:
        return Key.from_secret(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path} is broken: {error} Start a new run in another folder.") from None
