"""Records and clients, and what users bring made into them: pairs of tensors or arrays, or one file per client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file

from sfumato.data.inputs import Inputs, Several
from sfumato.errors import DataError, refused_by_system


class _Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class Records(_Pair):
    """Inputs and targets, one record per row.

    A record may have several inputs: `x` is then a dict or a tuple of tensors, which are held as one, and `inputs` says what it
    holds.

    >>> records = Records({"ids": torch.ones(2, 3).long(), "mask": torch.ones(2, 3).bool()}, torch.zeros(2))
    >>> print(records.inputs, records.x.shape)
    ids int64[3], mask bool[3] torch.Size([2, 6])
    """

    inputs: Inputs | None = None

    def __new__(cls, x: torch.Tensor | Several, y: torch.Tensor, *, inputs: Inputs | None = None) -> Records:
        if not isinstance(x, torch.Tensor):
            x, inputs = _packed(x, "records")
        made = super().__new__(cls, x, y)
        made.inputs = inputs
        return made

    def facts(self) -> object:
        """What a digest counts."""
        return [self.x, self.y, self.inputs]

    def __repr__(self) -> str:
        x = _shape(self.x) if self.inputs is None else str(self.inputs)
        return f"Records({self.count:,} records, x {x}, y {_shape(self.y)})"

    @property
    def count(self) -> int:  # type: ignore[override]
        return int(self.x.shape[0])


class Client(NamedTuple):
    """What one client holds: a part to train on and a part to test its own model on."""

    train: Records
    test: Records | None = None


def _shape(values: torch.Tensor) -> str:
    """The shape of one record, and its type, e.g. `1x8x8 float32`."""
    each, dtype = "x".join(map(str, values.shape[1:])), str(values.dtype).removeprefix("torch.")
    return f"{each} {dtype}".strip()


def as_client(loaded: Any, what: str) -> Client:
    """A checked `Client` from what a user's loader gave; `what` names it in errors.

    A dict has x and y, or inputs by their names and `labels`.
    """
    if isinstance(loaded, Client):
        return Client(_records(loaded.train, what), None if loaded.test is None else _records(loaded.test, what))
    if isinstance(loaded, Records):
        return Client(_records(loaded, what))
    if isinstance(loaded, dict):
        loaded = _labelled(loaded) or _parts(loaded, what)
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


def _labelled(loaded: Any) -> tuple[Any, Any] | None:
    """Inputs and targets of a dict with `labels`, as tokenizers and data sets of text give it."""
    if not isinstance(loaded, dict) or "labels" not in loaded or {"x", "y"} & loaded.keys():
        return None
    return {name: value for name, value in loaded.items() if name != "labels"}, loaded["labels"]


def _packed(x: Any, what: str) -> tuple[torch.Tensor, Inputs]:
    """Several inputs as one tensor, and what it holds."""
    several: Several
    if isinstance(x, Mapping):
        several = {name: _tensor(value, f"{what}, {name}") for name, value in x.items()}
    else:
        several = tuple(_tensor(value, f"{what}, input {place}") for place, value in enumerate(x))
    inputs = Inputs.of(several, what)
    return inputs.pack(several), inputs


def _records(pair: Any, what: str) -> Records:
    pair = _labelled(pair) or pair
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{what} is {kind(pair)}. Give (x, y), one record per row.")
    x, y, inputs = pair[0], _tensor(pair[1], f"{what}, y"), getattr(pair, "inputs", None)
    if isinstance(x, dict | tuple):
        x, inputs = _packed(x, what)
    x = _tensor(x, f"{what}, x")
    if x.shape[0] != y.shape[0]:
        raise DataError(f"{what}: x has {x.shape[0]} records and y has {y.shape[0]}. Give one target per record.")
    if not (y.is_floating_point() or y.dtype in (torch.int64, torch.bool)):
        y = y.long()
    return Records(x, y, inputs=inputs)


def _tensor(value: Any, what: str) -> torch.Tensor:
    if isinstance(value, list):
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise DataError(f"{what} has rows of different lengths. Give each record as many numbers.") from error
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.from_numpy(np.ascontiguousarray(value) if value.flags.writeable else value.copy())
    if not isinstance(value, torch.Tensor):
        held = "holds no numbers" if isinstance(value, np.ndarray) else f"is {kind(value)}"
        raise DataError(f"{what} {held}. Give a tensor with one record per row.")
    if value.ndim == 0:
        raise DataError(f"{what} is a single number. Give a tensor with one record per row.")
    return value.float() if value.dtype == torch.float64 else value


def described(records: Records) -> str:
    """What the inputs of a record are, for errors."""
    shape = "x".join(map(str, records.x.shape[1:]))
    return str(records.inputs or f"one tensor {str(records.x.dtype).removeprefix('torch.')}[{shape}]")


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
