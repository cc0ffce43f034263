"""The released models of all rounds, where a run kept them: one file a round, one row each. They are released values."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from sfumato.errors import DataError

FOLDER, WORD = "releases", "params"


def release_path(folder: Path, round: int) -> Path:
    """Where a run keeps the parameters that it showed after this round, counted from 1."""
    return folder / FOLDER / f"round-{round:06d}.safetensors"


def read_releases(folder: Path) -> tuple[Tensor, ...]:
    """The rows in the order of rounds; none, where the run was not asked to keep them."""
    paths = sorted((folder / FOLDER).glob("round-*.safetensors"))
    try:
        return tuple(load_file(path)[WORD] for path in paths)
    except Exception as error:
        raise DataError(f"{folder / FOLDER} holds a release that cannot be read: {error}. Train again.") from error
