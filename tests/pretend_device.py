"""A device that is none: its tensors say that they are elsewhere and are computed on the CPU.

So a whole run can be tried as on a GPU, with values, and compared with the CPU's to the bit. What a GPU refuses is refused here: an
operation on tensors of two devices, numbers drawn there by a CPU's generator, numpy. Its name is "meta", the only device besides
the CPU through which autograd goes on a machine without GPUs; a meta tensor of torch's own has no values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

from sfumato.engine import simulate as engine

NAME = "meta"
_aten = torch.ops.aten
_INDEXING = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default}
_COPIES = {_aten.copy_.default, _aten._foreach_copy_.default}
_FROM_DATA = {torch.tensor, torch.as_tensor, torch.asarray}


class MixedDevices(RuntimeError):
    """An operation that a GPU refuses."""


class Elsewhere(Tensor):
    """A tensor of the device; `inner` has its values."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> Elsewhere:
        facts: dict[str, Any] = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        self = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=NAME, **facts)
        self.inner = inner
        return self

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.inner = value.inner  # type: ignore[attr-defined]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.inner.tolist()

    def __repr__(self, **_: Any) -> str:
        return f"Elsewhere({self.inner!r})"


class _Functions(TorchFunctionMode):
    """A meta tensor is made without looking at the data that are given, before any dispatch; so is one of places in a list."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _FROM_DATA and _is_elsewhere(kwargs.get("device")):
            return func(*args, **{**kwargs, "device": "cpu"}).to(kwargs["device"])
        if func is Tensor.new_tensor and isinstance(args[0], Elsewhere):
            return func(args[0].inner, *args[1:], **kwargs).to(NAME)
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            whole = args[1] if isinstance(args[1], tuple) else (args[1],)
            places = tuple(torch.tensor(place) if isinstance(place, list) else place for place in whole)
            args = (args[0], places, *args[2:])
        return func(*args, **kwargs)


class _Dispatch(TorchDispatchMode):
    """Sees the functions that make tensors, and remembers what mixed: code that tries something out forgets why it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed: list[MixedDevices] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return _run(func, args, kwargs or {})
        except MixedDevices as error:
            self.mixed.append(error)
            raise


@contextmanager
def pretend_device() -> Iterator[str]:
    """The device, as long as this lasts: its name. Raises at its end if devices were mixed, whoever has caught that."""
    with _Functions(), _Dispatch() as dispatch:
        yield NAME
    if dispatch.mixed:
        raise dispatch.mixed[0]


@pytest.fixture
def accepting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine takes the device as one that is there, and draws the same noise as on the CPU."""
    digest, names = engine.digest, ("cpu", NAME)

    def without_name(*things: object) -> str:
        return digest(*(one for one in things if not (isinstance(one, str) and one in names)))

    generator = SimpleNamespace(
        get_rng_state=lambda device: torch.get_rng_state()
    )  # numbers drawn there come from here
    monkeypatch.setattr(engine, "_check_device", lambda device: None)
    monkeypatch.setattr(engine, "digest", without_name)
    monkeypatch.setattr(torch, "get_device_module", lambda device: generator)


def values(tensor: Tensor) -> Tensor:
    """The values of a tensor that must be on the device."""
    assert isinstance(tensor, Elsewhere), f"{tensor.device}, where the device was expected"
    return tensor.inner


def _is_elsewhere(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    elsewhere = _place(func, args, kwargs)
    plain = {**kwargs, "device": "cpu"} if kwargs.get("device") is not None else kwargs
    out = func(*_inner(args), **_inner(plain))
    if not elsewhere:
        return out
    return return_and_correct_aliasing(func, args, kwargs, tree_map_only(Tensor, Elsewhere, out))


def _inner(given: Any) -> Any:
    return tree_map_only(Elsewhere, lambda tensor: tensor.inner, given)


def _place(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether the result lies elsewhere."""
    if kwargs.get("device") is not None:
        elsewhere = _is_elsewhere(kwargs["device"])
    elif func in _COPIES:
        elsewhere = any(isinstance(value, Elsewhere) for value in tree_leaves(args[0]))
    else:
        elsewhere = _common(func, args, kwargs)
    if elsewhere and kwargs.get("generator") is not None:
        raise MixedDevices(f"{func}: a generator of the CPU draws nothing elsewhere")
    return elsewhere


def _common(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether all tensors lie elsewhere, or none does. A CPU's number may stand among them, and a CPU's places."""
    indexing = func in _INDEXING
    tensors = [
        one for one in tree_leaves(([args[0], *args[2:]] if indexing else args, kwargs)) if isinstance(one, Tensor)
    ]
    far = [isinstance(tensor, Elsewhere) for tensor in tensors]
    if indexing:
        tensors += [place for place in tree_leaves(args[1]) if isinstance(place, Elsewhere)]
        far += [True] * (len(tensors) - len(far))
    if len(set(far)) < 2:
        return any(far)
    takes_numbers = torch.Tag.pointwise in func.tags or indexing or "_foreach_" in func.name()
    written = 1 if func._schema.is_mutable or indexing else 0
    for nth, (tensor, there) in enumerate(zip(tensors, far, strict=True)):
        if not there and not (takes_numbers and nth >= written and tensor.dim() == 0):
            shapes = (
                f"{tuple(one.shape)} {'elsewhere' if is_far else 'here'}"
                for one, is_far in zip(tensors, far, strict=True)
            )
            raise MixedDevices(f"{func}: {', '.join(shapes)}")
    return True
