"""The released models of all rounds, where a run kept them: one file a round, one row each. They are released values."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save
from torch import Tensor

from sfumato.engine.checkpoint import make_folder, write_atomically
from sfumato.errors import DataError

FOLDER, WORD = "releases", "params"


def release_path(folder: Path, round: int) -> Path:
    """Where a run keeps the parameters that it showed after this round, counted from 1."""
    return folder / FOLDER / f"round-{round:06d}.safetensors"


def write_release(folder: Path, round: int, params: Tensor) -> None:
    """Keep the parameters that are shown after a round."""
    make_folder(folder / FOLDER)
    write_atomically(release_path(folder, round), save({WORD: params.cpu().contiguous()}))


def remove_releases(folder: Path, after: int) -> None:
    """Remove those of rounds that are begun again: they were shown, and count, but are not what the run goes on from."""
    for path in (folder / FOLDER).glob("round-*.safetensors"):
        if path > release_path(folder, after):
            path.unlink()


def read_releases(folder: Path) -> tuple[Tensor, ...]:
    """The rows in the order of rounds; none, where the run was not asked to keep them."""
    paths = sorted((folder / FOLDER).glob("round-*.safetensors"))
    try:
        return tuple(load_file(path)[WORD] for path in paths)
    except Exception as error:
        raise DataError(f"{folder / FOLDER} holds a release that cannot be read: {error}. Train again.") from error
