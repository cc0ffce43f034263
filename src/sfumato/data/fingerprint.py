"""A short name for data: a round is replayed with the same noise only on data of the same name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from sfumato import facts

# Up to this many bytes a folder is named by what its files hold, above it by their names, sizes and times of change.
_READ_UP_TO = 64 * 2**20


def _digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16, person=b"sfumato-data")


def of_tensors(tensors: Iterable[torch.Tensor], *words: object) -> str:
    """The name of tensors in their order, and of words that say how they are used.

    >>> of_tensors([torch.zeros(2, 3)]) == of_tensors([torch.zeros(3, 2)])
    False
    """
    digest = _digest()
    digest.update(facts.digest(*words).encode())
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
        if plain.numel():
            digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def are_few(files: Sequence[Path]) -> bool:
    """Whether files are small enough together to be read just to look at them."""
    return sum(file.stat().st_size for file in files) <= _READ_UP_TO


def of_files(files: Sequence[Path]) -> str:
    """The name of a folder's files."""
    digest = _digest()
    states, small = [file.stat() for file in files], are_few(files)
    for file, state in zip(files, states, strict=True):
        digest.update(f"{file.name}\0{state.st_size}\0".encode())
        digest.update(file.read_bytes() if small else str(state.st_mtime_ns).encode())
    return digest.hexdigest()
