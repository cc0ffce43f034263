"""Tiny files in the public formats, for tests of the loaders."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return header + array.astype(np.uint8).tobytes()


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_idx_set(
    folder: Path, train: str, test: str, ending: str = ".gz", counts: tuple[int, int] = (20, 10), first_label: int = 0
) -> None:
    """Images whose pixel [i, row, column] is i + row + 2 column, with labels that count up from `first_label`."""
    for prefix, count in zip((train, test), counts, strict=True):
        i, row, column = np.ogrid[:count, :28, :28]
        write(folder / f"{prefix}-images-idx3-ubyte{ending}", idx(i + row + 2 * column))
        write(folder / f"{prefix}-labels-idx1-ubyte{ending}", idx(np.arange(count) % 10 + first_label))


def write_cifar(path: Path, labels: list[int]) -> None:
    """Images that are their label in red, 100 in green and 200 in blue."""
    records = [bytes([label]) + bytes([label] * 1024 + [100] * 1024 + [200] * 1024) for label in labels]
    write(path, b"".join(records))
