"""A whole pool mapped once, by all cores, and kept on disk: `cached(features, pool, folder)`."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sfumato.data.record_map import RecordFailed
from sfumato.digest import cache_key, digest
from sfumato.features.chain import Features, Step
from sfumato.features.threads import one_thread
from sfumato.version import __version__

_FORMAT = 1  # of the files; a new one finds none of the old
_PART = 256  # records that a thread maps at once; no result depends on it


def cached(
    features: Features,
    pool: Tensor,
    folder: str | Path,
    records: str | None = None,
    scaling: Step | None = None,
) -> Tensor:
    """`features(scaling(pool))`, read from a file in the folder if it is there, and else mapped and kept there.

    The file's name is a digest of whatever can change a bit of it: the records (`records`, the digest of the pool if none
    is given), the scaling, the features with all their numbers, the versions of what computes them and the kind of
    processor. A file that is damaged, cut off or another's is mapped again. It is written beside and renamed, so two processes at
    once do no harm; where it cannot be written, nothing is kept. What clients hold can be guessed from it, so folder and file
    are for their owner's eyes only.
    """
    words = (_FORMAT, __version__, torch.__version__, np.__version__, torch.backends.cpu.get_cpu_capability())
    name = cache_key(*map(str, words), records or digest(pool), str(pool.dtype), tuple(pool.shape), scaling, features)
    if name is None:
        return mapped(features, pool, scaling)
    path = Path(folder) / f"{name}.safetensors"
    found = _read(path, len(pool))
    if found is None:
        found = mapped(features, pool, scaling)
        _write(path, found)
    return found


def mapped(features: Features, pool: Tensor, scaling: Step | None = None) -> Tensor:
    """`features(scaling(pool))`, by as many threads as torch may use, each with parts of its own.

    By the law of single records no bit depends on the parts nor on who maps them. The pool is scaled by parts, so that one of
    bytes is never there in floats as a whole. A network of the user's own uses its threads within, as it does else.
    """

    def part(start: int) -> Tensor:
        some = pool[start : start + _PART]
        try:
            return features(some if scaling is None else scaling(some))
        except RecordFailed as failed:
            raise failed.after(start) from failed.__cause__

    first, threads = part(0), 1 if features.has_own else torch.get_num_threads()
    found = first.new_empty(len(pool), *first.shape[1:])
    found[:_PART] = first

    def fill(start: int) -> None:
        found[start : start + _PART] = part(start)

    starts = range(_PART, len(pool), _PART)
    if threads == 1:
        for start in starts:
            fill(start)
        return found
    with one_thread(), ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        for _ in workers.map(fill, starts):  # which raises what a worker has raised
            pass
    return found


def _read(path: Path, count: int) -> Tensor | None:
    """The kept tensor, if the file is whole: its content has the name that was written beside it."""
    try:
        with safe_open(path, framework="pt") as file:
            found: Tensor = file.get_tensor("x")
            told = (file.metadata() or {}).get("content")
    except (OSError, SafetensorError):
        return None
    return found if len(found) == count and told == digest(found) else None


def _write(path: Path, found: Tensor) -> None:
    with suppress(OSError, SafetensorError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=".tmp", dir=path.parent)
        os.close(descriptor)
        try:
            save_file({"x": found}, temporary, {"content": digest(found)})
            os.chmod(temporary, 0o600)
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
