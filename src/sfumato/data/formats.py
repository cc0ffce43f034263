"""Readers of the public file formats: IDX (MNIST and its family), CIFAR's records, SVHN's MATLAB files, folders of pictures."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sfumato.errors import DataError

_CIFAR_IMAGE = 3 * 32 * 32
_PICTURES = (".jpeg", ".jpg", ".png")


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


def read_cifar(path: Path, labels: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32] and labels of a CIFAR binary file: bytes of label, then red, green and blue by rows.

    CIFAR-10 has one byte of label, CIFAR-100 two, the coarse class and the fine one; it is the last that is given.
    """
    data, size = _read(path), labels + _CIFAR_IMAGE
    if len(data) == 0 or len(data) % size:
        raise DataError(f"{path} has {len(data)} bytes, no multiple of {size} as CIFAR's records are. Fetch it again.")
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
    return records[:, labels:].reshape(-1, 3, 32, 32), records[:, labels - 1]


def read_svhn(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32] and labels of a cropped SVHN file.

    It has X [32, 32, 3, n] by rows, columns and colours, and y, in which the digit 0 is called 10.
    """
    from scipy.io import loadmat

    try:
        found = loadmat(path, variable_names=("X", "y"))
        x, y = found["X"], found["y"].reshape(-1)
    except Exception as error:  # scipy raises what its parser stumbles over
        raise DataError(
            f"{path} is no MATLAB file with X and y: {type(error).__name__}: {error}. Fetch it again."
        ) from error
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[:3] != (32, 32, 3):
        raise DataError(
            f"{path}: X is {x.dtype} of shape {x.shape}, not bytes of shape (32, 32, 3, images). Fetch it again."
        )
    return x.transpose(3, 2, 0, 1), np.where(y == 10, 0, y)


def read_pictures(folder: Path) -> np.ndarray:
    """The pictures of a folder in the order of their names, in grey [n, 1, height, width]; all have one size."""
    found: list[np.ndarray] = []
    for file in pictures_in(folder):
        found.append(_picture(file, "L"))
        if found[-1].shape != found[0].shape:
            sizes = " and ".join("x".join(map(str, array.shape)) for array in (found[0], found[-1]))
            raise DataError(f"{file}: pictures of {sizes} pixels in one folder. Give them one size.")
    return np.stack(found)[:, None]


def read_coloured(files: Sequence[Path], side: int) -> np.ndarray:
    """These pictures in colour, resized to squares: [n, 3, side, side]."""
    found = np.empty((len(files), 3, side, side), np.uint8)
    for number, file in enumerate(files):
        found[number] = _picture(file, "RGB", side).transpose(2, 0, 1)
    return found


def pictures_in(folder: Path) -> list[Path]:
    """The pictures of a folder, in the order of their names."""
    found = sorted(file for file in folder.iterdir() if file.suffix.lower() in _PICTURES)
    if not found:
        raise DataError(f"{folder} holds no picture ({', '.join(_PICTURES)}). Fetch it again.")
    return found


def _picture(file: Path, mode: str, side: int = 0) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file, formats=("PNG", "JPEG")) as picture:
            found = picture if picture.mode == mode else picture.convert(mode)
            if side and found.size != (side, side):
                found = found.resize((side, side), Image.Resampling.BILINEAR)
            return np.asarray(found)
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError) as error:  # Pillow's decoders raise all of these
        raise DataError(f"{file} is no picture: {error}. Fetch it again.") from error


def read_numbers(path: Path) -> np.ndarray:
    """The lines of a table of numbers in CSV, without its head; NA is not a number."""
    try:
        return np.loadtxt(io.StringIO(path.read_text().replace("NA", "nan")), delimiter=",", skiprows=1, ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no table of numbers: {error}. Fetch it again.") from error


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Fetch it again.") from error
