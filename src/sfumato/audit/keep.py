"""Intermediate results of an attack, on disk for their owner's eyes only, so that an attack that was stopped goes on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from sfumato.digest import cache_key
from sfumato.engine.checkpoint import write_atomically
from sfumato.errors import DataError
from sfumato.key import Key
from sfumato.run.lock import Lock

_KEPT = "kept"


class Keep:
    """Intermediate results on disk, so that an attack that was stopped goes on; only one process writes them at a time.

    Everything is drawn from a secret of the audit's own, 32 bytes from the system that lie beside the results; or from a seed.
    With no folder nothing is kept, and nothing that was made from an unnamed function or class.
    """

    def __init__(self, folder: Path | None, seed: int | None = None) -> None:
        self.folder = folder
        self._lock: Lock | None = None
        if folder is not None:
            private_folder(folder)
            self._lock = Lock(folder, busy="another process attacks the run in")
        self.key = (_secret(folder) if seed is None else Key.from_seed(seed)).child("audit")

    def once(self, name: str, facts: object, compute: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """What `compute` gives, from disk if it was computed before from the same facts and the same secret.

        The name is that of the file, so the same name with other facts takes the place of what was there.
        """
        found = self.get(name, facts)
        return self.put(name, facts, compute()) if found is None else found

    def get(self, name: str, facts: object) -> dict[str, Tensor] | None:
        """What was kept under this name, if it was made from these facts with this secret, and is whole."""
        path, known = self._path(name), cache_key(facts, self.key.digest)
        return None if path is None or known is None else _read(path, known)

    def put(self, name: str, facts: object, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Keep tensors under a name; they are on disk when this returns."""
        tensors = {word: value.detach().cpu().contiguous().clone() for word, value in found.items()}
        path, known = self._path(name), cache_key(facts, self.key.digest)
        if path is not None and known is not None:
            private_folder(path.parent)
            write_atomically(path, save(tensors, {"facts": known}), mode=0o600)
        return tensors

    def _path(self, name: str) -> Path | None:
        if not re.fullmatch(r"[\w.-]+", name):
            raise ValueError(f"{name!r} cannot be the name of a file")
        return None if self.folder is None else self.folder / _KEPT / f"{name}.safetensors"

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Keep:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _secret(folder: Path | None) -> Key:
    """The secret of an audit: in its folder, or new. It draws the audit's own models, which protect no one."""
    if folder is None:
        return Key.from_system()
    path = folder / "secret.key"
    if not path.exists():
        write_atomically(path, os.urandom(32), mode=0o600)
    try:
        return Key.from_secret(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path} is broken: {error} Remove the folder, and attack again.") from None


def _read(path: Path, known: str) -> dict[str, Tensor] | None:
    """The tensors of a file that was made from these facts; None if there is none, or it is another's or broken."""
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("facts") != known:
                return None
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception:
        return None


def private_folder(folder: Path) -> Path:
    """A folder that only its owner can enter, made if it is not there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise DataError(f"{folder} cannot be made or kept private: {error.strerror}. Mend its permissions.") from None
    return folder
