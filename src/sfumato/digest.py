"""A short name for values: equal values have one digest in every process, other values have another.

Plain values count by what they are, tensors and arrays by type, shape and bytes, dataclasses by their compared fields, torch
modules by their layers' attributes, parameters and buffers. Functions and classes count by their import path, never by their
code. What has no import path is refused: a lambda, a local class, what a notebook defines, any other object.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from sfumato.errors import BadValue

if TYPE_CHECKING:
    from torch import Tensor, nn

_TORCHS_OWN = (
    "_parameters",
    "_buffers",
    "_modules",
    "_flat_weights",
    "_flat_weight_refs",
)  # of a layer; they count separately


class Unnamed(BadValue):
    """A thing without an import path, so that no other process could find the same."""


def digest(*things: Any) -> str:
    """32 hexadecimal digits. A class may say in a method `facts()` what it counts by. The order of a mapping does not count.

    Ledgers name clients by digests of plain values, lists and tuples: how those are written here never changes.

    >>> digest(1, "a") == digest(1, "a"), digest(1) == digest(1.0), digest({1: 2, 3: 4}) == digest({3: 4, 1: 2})
    (True, False, True)
    """
    return _short(json.dumps([_written(thing) for thing in things]).encode())


def cache_key(*things: Any) -> str | None:
    """The digest by which a cache finds a result; None where something is unnamed, and then nothing is to be cached."""
    try:
        return digest(*things)
    except Unnamed:
        return None


def of_pool(tensors: Iterable[Tensor]) -> str:
    """The digest of a pool of records. Ledgers name clients by it, so its value never changes."""
    found = hashlib.blake2b(digest().encode(), digest_size=16, person=b"sfumato-data")
    for tensor in tensors:
        found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        found.update(_content(tensor))
    return found.hexdigest()


def _short(content: bytes | bytearray | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=16, person=b"sfumato-facts").hexdigest()


def _content(tensor: Tensor) -> memoryview:
    import torch

    plain = tensor.detach().to_dense().cpu().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().data if plain.numel() else memoryview(b"")


def _is(thing: Any, home: str, name: str) -> bool:
    """Whether a thing is of a class in a module that need not be loaded: if it is not, nothing is."""
    return home in sys.modules and isinstance(thing, getattr(sys.modules[home], name))


def _written(thing: Any) -> Any:
    """A thing as JSON has it."""
    if thing is None or type(thing) in (bool, int, str):
        return thing
    if type(thing) is float:
        return {"float": thing.hex()}
    if isinstance(thing, bytes | bytearray):
        return {"bytes": _short(thing)}
    if type(thing) is list:
        return [_written(one) for one in thing]
    if isinstance(thing, Mapping):
        return {"pairs": sorted(([_written(key), _written(value)] for key, value in thing.items()), key=json.dumps)}
    if isinstance(thing, set | frozenset):
        return {"members": sorted(map(_written, thing), key=json.dumps)}
    if isinstance(thing, functools.partial):
        return {"partial": _written([thing.func, thing.args, thing.keywords])}
    if _is(thing, "torch", "Tensor"):
        return {"tensor": str(thing.dtype), "shape": list(thing.shape), "bytes": _short(_content(thing))}
    if _is(thing, "torch.nn", "Module"):
        return {"module": _module(thing)}
    if (_is(thing, "numpy", "ndarray") or _is(thing, "numpy", "generic")) and not thing.dtype.hasobject:
        return {"array": thing.dtype.str, "shape": list(thing.shape), "bytes": _short(thing.tobytes())}
    if _is(thing, "torch", "dtype") or _is(thing, "torch", "device"):
        return {"torch": str(thing)}
    kind = type(thing)
    if isinstance(thing, Enum):
        return {"type": _path(kind), "name": thing.name}
    if callable(getattr(kind, "facts", None)):
        return {"type": _path(kind), "facts": _written(thing.facts())}
    if isinstance(thing, tuple):
        return {"type": _path(kind), "items": [_written(one) for one in thing]}
    if dataclasses.is_dataclass(kind):
        fields = [[part.name, _written(getattr(thing, part.name))] for part in dataclasses.fields(kind) if part.compare]
        return {"type": _path(kind), "fields": fields}
    return {"path": _path(thing)}


def _module(module: nn.Module) -> list[Any]:
    """The layers with their attributes, then the parameters in their order, and the buffers."""
    layers = [
        [name, _path(type(layer)), _written({key: own for key, own in vars(layer).items() if key not in _TORCHS_OWN})]
        for name, layer in module.named_modules()
    ]
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [layers, [[name, tensor.requires_grad, _written(tensor)] for name, tensor in tensors]]


def _path(thing: Any) -> str:
    """Where any process finds a function or class. A notebook or script is `__main__`, which every process has of its own."""
    home = getattr(thing, "__module__", None)
    for name in (getattr(thing, "__qualname__", None), getattr(thing, "__name__", None)):
        found = (
            sys.modules.get(home) if isinstance(home, str) and isinstance(name, str) and home != "__main__" else None
        )
        for word in str(name).split("."):
            found = getattr(found, word, None)
        if found is thing and found is not None:
            return f"{home}.{name}"
    raise Unnamed(
        f"{getattr(thing, '__qualname__', f'a {type(thing).__qualname__}')} in {home} has no import path. Define it at the top "
        "of a module."
    )
