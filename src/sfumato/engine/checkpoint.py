"""What a run needs to continue after a crash: released values, and apart from them what clients keep for themselves.

A small checkpoint is in the run's ledger, stored in the transaction that settles its round; a larger one is a file that is
written whole, synced, then renamed. What clients keep (personal models, control variates) is private: a file of its own for its
owner's eyes only, written before the checkpoint of the same round, and removed when the run ends.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load, save

from sfumato.engine.plan import Plan
from sfumato.errors import BadValue, DataError
from sfumato.ledger.file import is_empty
from sfumato.ledger.ledger import Ledger

Tensors = Mapping[str, torch.Tensor]
LEDGER, CHECKPOINT = "ledger.sqlite", "checkpoint.safetensors"
FILES = (LEDGER, CHECKPOINT)  # any of them means that there is a run
_OLD_SECRET = "secret.key"  # of versions that drew the noise of a round again
_PERSONAL = re.compile(r"personal-(\d+)\.safetensors")
_SMALL = 2**20  # bytes that a ledger takes in a transaction


@dataclass(frozen=True)
class Checkpoint:
    """The state after `round` rounds. `of` names the run: its written Round, its model's shape, its population."""

    round: int
    of: str
    plan: Plan
    params: torch.Tensor
    state: dict[str, torch.Tensor]
    memory: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)  # what clients keep, by client and name
    kept: dict[str, torch.Tensor] = field(default_factory=dict)  # what pieces keep, by place
    forgotten: bool = False  # what clients kept was removed when the run ended

    def to(self, device: str) -> Checkpoint:
        """The same on a device: what was read, and what pieces begin with, is on the CPU."""
        state, kept = ({name: value.to(device) for name, value in held.items()} for held in (self.state, self.kept))
        memory = {client: {name: row.to(device) for name, row in rows.items()} for client, rows in self.memory.items()}
        return replace(self, params=self.params.to(device), state=state, memory=memory, kept=kept)

    def write(self, folder: Path, ledger: Ledger, run: str, reservations: Sequence[int] = (), step: str = "") -> None:
        """Store it in the run's folder or its ledger, and settle these reservations."""
        if self.memory:
            write_atomically(folder / f"personal-{self.round}.safetensors", _of_memory(self.memory), mode=0o600)
        facts = {"round": self.round, "of": self.of, "plan": asdict(self.plan), "remembers": bool(self.memory)}
        tensors = {"params": self.params.cpu().contiguous()}
        for word, held in (("state.", self.state), ("kept.", self.kept)):
            tensors |= {word + name: value.cpu().contiguous() for name, value in held.items()}
        content = save(tensors, {"sfumato": json.dumps(facts)})
        if len(content) <= _SMALL:
            ledger.settle(run, *reservations, state=(step or "run", content))
            # of an older version, which kept personal models in it
            (folder / step / CHECKPOINT).unlink(missing_ok=True)
        else:
            make_folder(folder / step)
            write_atomically(folder / step / CHECKPOINT, content, mode=0o600)
            ledger.settle(run, *reservations)
        for path, round in _memories(folder) if self.memory else ():
            if round != self.round:
                path.unlink()

    @staticmethod
    def read(folder: Path, step: str = "") -> Checkpoint | None:
        """The last one of the run in a folder; None if there is none. `step` is what a run does before its first round."""
        book, path, found = folder / LEDGER, folder / step / CHECKPOINT, list[Checkpoint]()
        small = None if is_empty(book) else Ledger(book, None).state(step or "run")
        try:
            if small is not None:
                found.append(_read(folder, _metadata(small), load(small)))
        except Exception as error:
            raise _unreadable(book, error) from error
        try:
            if path.exists():
                with safe_open(path, framework="pt") as file:
                    found.append(_read(folder, file.metadata(), {name: file.get_tensor(name) for name in file.keys()}))  # noqa: SIM118
        except Exception as error:
            raise _unreadable(path, error) from error
        return max(found, key=lambda one: one.round, default=None)


def remove_private(folder: Path) -> None:
    """Remove what clients kept for themselves, and the secret that an older version left."""
    for path in (*(path for path, _ in _memories(folder)), folder / _OLD_SECRET):
        path.unlink(missing_ok=True)


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read: {error}. Start a new run in another folder.")


def _metadata(content: bytes) -> Mapping[str, str]:
    """The metadata of a safetensors file: a JSON header stands behind its length."""
    header: Mapping[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(header["__metadata__"])


def _read(folder: Path, metadata: Mapping[str, str], tensors: Tensors) -> Checkpoint:
    facts: dict[str, Any] = json.loads(metadata["sfumato"])
    state, kept, memory = (
        {name.removeprefix(word): value for name, value in tensors.items() if name.startswith(word)}
        for word in ("state.", "kept.", "memory.")
    )
    path = folder / f"personal-{facts['round']}.safetensors"
    forgotten = bool(facts.get("remembers")) and not path.exists()
    if facts.get("remembers") and not forgotten:
        with safe_open(path, framework="pt") as file:
            facts["clients"] = json.loads(file.metadata()["clients"])
            memory = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    plan, of = Plan(**facts["plan"]), facts.get("of", "")  # older versions named a run in another way
    clients = _memory(facts.get("clients", {}), memory)
    return Checkpoint(
        round=facts["round"],
        of=of,
        plan=plan,
        params=tensors["params"],
        state=state,
        memory=clients,
        kept=kept,
        forgotten=forgotten,
    )


def _of_memory(memory: Mapping[int, Tensors]) -> bytes:
    names = sorted({name for rows in memory.values() for name in rows})
    clients = {name: [client for client, rows in memory.items() if name in rows] for name in names}
    rows = {name: torch.stack([memory[client][name] for client in clients[name]]).cpu() for name in names}
    return save(rows, {"clients": json.dumps(clients)})


def _memory(clients: Mapping[str, list[int]], rows: Tensors) -> dict[int, dict[str, torch.Tensor]]:
    found: dict[int, dict[str, torch.Tensor]] = {}
    for name, who in clients.items():
        for client, row in zip(who, rows[name], strict=True):
            found.setdefault(client, {})[name] = row
    return found


def _memories(folder: Path) -> list[tuple[Path, int]]:
    """The files of what clients keep, with their rounds."""
    names = ((path, _PERSONAL.fullmatch(path.name)) for path in folder.iterdir())
    return [(path, int(name[1])) for path, name in names if name is not None]


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
