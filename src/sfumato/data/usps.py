"""USPS (LeCun et al. 1990): 7,291 and 2,007 digits of 16x16 from envelopes, from 0 to 1; as the text files of LIBSVM or in HDF5."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from sfumato.data.population import Records
from sfumato.data.sets import Dataset, Scaling, dataset_of
from sfumato.errors import DataError

_FILES = (("usps", "usps.t"), ("usps.bz2", "usps.t.bz2"))
_SCALING = Scaling(1.0, (0.2545,), (0.3846,))  # of the published training set


def usps(name: str, root: Path) -> Dataset:
    """The digits; LIBSVM's files need no further package, so they come first."""
    for folder in (root / name, root):
        for files in _FILES:
            if all((folder / file).is_file() for file in files):
                train, test = (_libsvm(folder / file) for file in files)
                return dataset_of(name, train, test, 10, _SCALING)
        if (folder / "usps.h5").is_file():
            train, test = _hdf5(folder / "usps.h5")
            return dataset_of(name, train, test, 10, _SCALING)
    raise FileNotFoundError(name)


def _libsvm(path: Path) -> Records:
    """Lines of a label from 1 to 10 and the numbers that are not 0, from -1 to 1; the digit 0 is called 1."""
    from sklearn.datasets import load_svmlight_file

    try:
        x, y = load_svmlight_file(str(path), n_features=256)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no text of LIBSVM with 256 numbers a line: {error}. Fetch it again.") from error
    return _records(path, (x.toarray() + 1.0) / 2.0, y - 1.0)


def _hdf5(path: Path) -> tuple[Records, Records]:
    try:
        import h5py
    except ImportError:
        raise DataError(
            f"{path} is read by h5py, which is not installed. Install it with pip install 'sfumato[usps]', or put usps.bz2 and "
            f"usps.t.bz2 of LIBSVM's page into {path.parent}, which need no package."
        ) from None
    try:
        with h5py.File(path, "r") as file:
            parts = [(file[f"{part}/data"][:], file[f"{part}/target"][:]) for part in ("train", "test")]
    except (OSError, KeyError) as error:
        raise DataError(
            f"{path} is no HDF5 file with data and target of train and test: {error}. Fetch it again."
        ) from error
    train, test = (_records(path, *part) for part in parts)
    return train, test


def _records(path: Path, x: np.ndarray, y: np.ndarray) -> Records:
    if x.shape != (len(y), 256) or not ((x >= 0) & (x <= 1)).all():
        raise DataError(f"{path} holds numbers of shape {x.shape}, not 256 in range for each digit. Fetch it again.")
    pictures = torch.from_numpy(x.astype(np.float32)).reshape(-1, 1, 16, 16)
    return Records(pictures, torch.from_numpy(y.astype(np.int64)))
