"""Readers of the public file formats: IDX (MNIST and its family) and CIFAR's binary records."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from sfumato.errors import DataError

_CIFAR_RECORD = 1 + 3 * 32 * 32


def read_idx(path: Path) -> np.ndarray:
    """The array of bytes in an IDX file, compressed or not.

    The header is two zero bytes, the type (8 is unsigned bytes), the number of dimensions, and each one in 4 bytes,
    the big end first.
    """
    data = _read(path)
    if len(data) < 4 or data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        raise DataError(f"{path} is no IDX file of bytes: it starts with {data[:4]!r}. Fetch it again.")
    start = 4 + 4 * data[3]
    shape = tuple(int(n) for n in np.frombuffer(data, dtype=">u4", count=data[3], offset=4))
    expected = int(np.prod(shape))
    if len(data) - start != expected:
        raise DataError(
            f"{path} should hold {expected} bytes of shape {shape}, it has {len(data) - start}. Fetch it again."
        )
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def read_cifar(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32] and labels of a CIFAR-10 binary file: a byte of label, then red, green and blue by rows."""
    data = _read(path)
    if len(data) == 0 or len(data) % _CIFAR_RECORD:
        raise DataError(
            f"{path} has {len(data)} bytes, no multiple of {_CIFAR_RECORD} as CIFAR-10's records are. Fetch it again."
        )
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Fetch it again.") from error
