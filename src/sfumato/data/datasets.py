"""Data sets of other libraries as records: whatever has a length and gives its records by number.

| what                       | how it is known                                                                          |
|----------------------------|------------------------------------------------------------------------------------------|
| `(x, y)`                   | a tuple of two tensors, arrays or lists, one record per row; also `Records`               |
| Hugging Face `Dataset`     | `column_names` and `with_format("torch")`: a slice of it is a dictionary of columns       |
| `TensorDataset`            | `tensors`, two of them                                                                   |
| any other                  | `len(data)` and `data[number]`: a torch `Dataset`, a `Subset`, a list                     |

A record is `(x, y)` or a dictionary; x and y are tensors, arrays, numbers or lists of numbers. Several inputs of a record are a
dictionary or a tuple in place of x, or all keys of the record but its target.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sfumato.data.records import Records, as_client, kind
from sfumato.errors import DataError, nearest

_TARGETS = ("y", "labels")  # unless target= says otherwise


def records_of(data: Any, what: str = "the data set", target: str | None = None, input: str | None = None) -> Records:
    """All records of one data set.

    >>> records_of([([1.0, 2.0], 0), ([3.0, 4.0], 1)]).x.shape
    torch.Size([2, 2])
    """
    if isinstance(data, tuple) and len(data) == 2:
        return as_client(data, what).train
    if hasattr(data, "column_names") and hasattr(data, "with_format"):
        pair = _of_columns(data, what, target, input)
    elif isinstance(tensors := getattr(data, "tensors", None), tuple):
        if len(tensors) != 2:
            raise DataError(f"{what} has {len(tensors)} tensors. Give two: the inputs and the target of each record.")
        pair = tensors
    else:
        pair = _of_items(data, what, target, input)
    return as_client(pair, what).train


def _of_columns(data: Any, what: str, target: str | None, input: str | None) -> tuple[Any, Any]:
    if isinstance(data.column_names, dict):
        raise DataError(f"{what} has several splits: {', '.join(data.column_names)}. Give one of them.")
    if not hasattr(data, "__len__"):
        raise DataError(f"{what} is a stream without a length. Give one that is loaded whole.")
    inputs, y = _names(data.column_names, what, target, input)
    found = data.with_format("torch", columns=[*inputs, y])[:]
    x = {name: _stacked(found[name], what, name) for name in inputs}
    return x if len(inputs) > 1 else x[inputs[0]], _stacked(found[y], what, y)


def _of_items(data: Any, what: str, target: str | None, input: str | None) -> tuple[Any, Any]:
    if isinstance(data, dict | str) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise DataError(
            f"{what} is {kind(data)}. Give a data set with a length that gives its records by number, or (x, y), one record "
            "per row."
        )
    drawn = _generators()
    items = [data[number] for number in range(len(data))]
    if _generators() != drawn:
        raise DataError(
            f"{what} draws random numbers as it is read, so with one record less all later ones would be others. It is read once, "
            "so this would be no augmentation either. Leave random transforms out."
        )
    if not items:
        raise DataError(
            f"{what} has no records, so their shape is not known. Give (x, y) with no rows, or leave it out."
        )
    pairs = [_pair(item, f"{what}, record {number}", target, input) for number, item in enumerate(items)]
    x, y = zip(*pairs, strict=True)
    return _stacked(x, what, "the inputs"), _stacked(y, what, "the target")


def _generators() -> tuple[object, ...]:
    """Where the random generators stand that transforms draw from."""
    numpy = np.random.get_state(legacy=False)["state"]
    return torch.get_rng_state().tolist(), random.getstate(), numpy["key"].tolist(), numpy["pos"]


def _pair(item: Any, what: str, target: str | None, input: str | None) -> tuple[Any, Any]:
    """The inputs and the target of one record."""
    if isinstance(item, dict):
        inputs, y = _names(list(item), what, target, input)
        return {name: item[name] for name in inputs} if len(inputs) > 1 else item[inputs[0]], item[y]
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise DataError(f"{what} is {kind(item)}. Give (x, y), or a dictionary with target= naming what a model learns.")


def _names(keys: Sequence[str], what: str, target: str | None, input: str | None) -> tuple[list[str], str]:
    """Which keys are the inputs, one or several, and which is the target."""
    y = target or next((name for name in _TARGETS if name in keys), _TARGETS[0])
    if y not in keys:
        raise DataError(f"{what} has no {y!r} to be learnt. Name it with target=. {nearest(y, keys)}")
    others = [key for key in keys if key != y]
    if input is not None and input not in others:
        raise DataError(f"{what} has no {input!r}. {nearest(input, others)}")
    if not others:
        raise DataError(f"{what} has nothing beside {y!r} to learn it from. Give the inputs of each record too.")
    return [input] if input is not None else others, y


def _stacked(values: Any, what: str, name: str) -> Any:
    """One tensor with a record per row; of several inputs, one for each."""
    if isinstance(values, torch.Tensor):
        return values
    if isinstance(values[0], dict):
        return {key: _stacked([one[key] for one in values], what, key) for key in values[0]}
    if isinstance(values[0], tuple):
        return tuple(_stacked(part, what, f"{name}, number {n}") for n, part in enumerate(zip(*values, strict=True)))
    try:
        parts = [one if isinstance(one, torch.Tensor) else torch.from_numpy(np.asarray(one)) for one in values]
        return torch.stack(parts)
    except (TypeError, ValueError, RuntimeError) as error:
        shapes = sorted({str(tuple(np.shape(one))) for one in values if isinstance(one, torch.Tensor | np.ndarray)})
        why = f"of shapes {' and '.join(shapes[:2])}" if len(shapes) > 1 else f"{kind(values[0])} each"
        raise DataError(
            f"{what}: {name} are {why}, and cannot be one tensor. Give every record a tensor, an array or numbers of one shape."
        ) from error
