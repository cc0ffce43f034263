"""Values with tensors in them, ready to be sent: a tensor travels as its own numbers, not with the storage that it looks into."""

from __future__ import annotations

import io
import pickle
from typing import Any, TypeAlias

import numpy as np
import torch

Packed: TypeAlias = tuple[bytes, list[np.ndarray]]


class _Pickler(pickle.Pickler):
    """Torch pickles the whole storage behind a view, which may hold other clients' rows; numpy what is seen, without a copy."""

    def reducer_override(self, value: Any) -> Any:
        plain = type(value) is torch.Tensor and value.device.type == "cpu" and value.dtype is not torch.bfloat16
        if not plain or value.requires_grad or value.layout is not torch.strided:
            return NotImplemented
        return _tensor, (value.numpy(),)


def packed(value: object) -> Packed:
    """A short text of bytes, and arrays that whoever sends them need not copy.

    >>> whole = torch.zeros(1000)
    >>> text, arrays = packed({"seen": whole[:2]})
    >>> len(text) < 400, [array.nbytes for array in arrays], unpacked((text, arrays))
    (True, [8], {'seen': tensor([0., 0.])})
    """
    file, parts = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(file, protocol=5, buffer_callback=parts.append).dump(value)
    return file.getvalue(), [np.frombuffer(part.raw(), dtype=np.uint8) for part in parts]


def unpacked(given: Packed) -> Any:
    """What was packed; its tensors are its own, and may be written to."""
    text, arrays = given
    return pickle.loads(text, buffers=arrays)


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.copy())
