"""Records and clients, and what users bring made into them: pairs of tensors or arrays, or one file per client."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file

from sfumato.errors import DataError, refused_by_system


class Records(NamedTuple):
    """Inputs and targets, one record per row."""

    x: torch.Tensor
    y: torch.Tensor

    @property
    def count(self) -> int:  # type: ignore[override]
        return int(self.x.shape[0])


class Client(NamedTuple):
    """What one client holds: a part to train on and a part to test its own model on."""

    train: Records
    test: Records | None = None


def as_client(loaded: Any, what: str) -> Client:
    """A checked `Client` from what a user's loader gave; `what` names it in errors."""
    if isinstance(loaded, Client):
        return Client(_records(loaded.train, what), None if loaded.test is None else _records(loaded.test, what))
    if isinstance(loaded, dict):
        loaded = _parts(loaded, what)
    if isinstance(loaded, tuple | list) and len(loaded) in (2, 4):
        return Client(*(_records(loaded[start : start + 2], what) for start in range(0, len(loaded), 2)))
    raise DataError(f"{what} is {kind(loaded)}. Give (x, y), or (x, y, x_test, y_test), one record per row.")


def _parts(loaded: dict[Any, Any], what: str) -> tuple[Any, ...]:
    """x and y, and both of x_test and y_test if there is one of them."""
    tested = "x_test" in loaded or "y_test" in loaded
    names = ("x", "y", "x_test", "y_test") if tested else ("x", "y")
    if missing := [name for name in names if name not in loaded]:
        there = ", ".join(map(str, loaded)) or "nothing"
        raise DataError(f"{what} has {there}, but not {' and '.join(missing)}. Give x and y, one record per row.")
    return tuple(loaded[name] for name in names)


def _records(pair: Any, what: str) -> Records:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{what} is {kind(pair)}. Give (x, y), one record per row.")
    x, y = (_tensor(value, f"{what}, {word}") for word, value in zip("xy", pair, strict=True))
    if x.shape[0] != y.shape[0]:
        raise DataError(f"{what}: x has {x.shape[0]} records and y has {y.shape[0]}. Give one target per record.")
    if not (y.is_floating_point() or y.dtype in (torch.int64, torch.bool)):
        y = y.long()
    return Records(x, y)


def _tensor(value: Any, what: str) -> torch.Tensor:
    if isinstance(value, list):
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise DataError(f"{what} has rows of different lengths. Give each record as many numbers.") from error
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.from_numpy(np.ascontiguousarray(value) if value.flags.writeable else value.copy())
    if not isinstance(value, torch.Tensor):
        raise DataError(f"{what} is {kind(value)}. Give a tensor with one record per row.")
    if value.ndim == 0:
        raise DataError(f"{what} is a single number. Give a tensor with one record per row.")
    return value.float() if value.dtype == torch.float64 else value


def kind(value: object) -> str:
    """What a value is, for errors."""
    return f"a {type(value).__name__}"


def _read_npz(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def read_client(path: Path) -> Client:
    """The client in a file; what the readers raise about it becomes one sentence."""
    try:
        loaded = READERS[path.suffix](path)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise refused_by_system(error) from error
        raise DataError(
            f"{path} is damaged, or holds more than tensors, which is not safe to load. Save x and y in it anew, as plain "
            "tensors or arrays."
        ) from error
    return as_client(loaded, str(path))


READERS: dict[str, Callable[[Path], Any]] = {
    ".pt": partial(torch.load, map_location="cpu", weights_only=True),
    ".npz": _read_npz,
    ".safetensors": load_file,
}
