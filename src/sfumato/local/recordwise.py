"""Which functions treat each record alone: only these may see several clients' records, or several clipped ones, at once.

A list of what is known, not a test of what is not: a function outside it (a batch statistic, a sum over the batch, arithmetic
with the batch's size) sends the module to a way that keeps records apart by construction.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from sfumato.measures import RECORD_WISE

Tensor = torch.Tensor

_POINTWISE = {
    F.relu, F.relu6, F.gelu, F.silu, F.mish, F.elu, F.selu, F.celu, F.leaky_relu, F.softplus, F.tanh, F.sigmoid, F.hardtanh,
    F.hardswish, F.hardsigmoid, F.logsigmoid, F.softsign, F.tanhshrink, F.prelu, torch.relu, torch.relu_, torch.tanh,
    torch.sigmoid, Tensor.relu, Tensor.relu_, Tensor.tanh, Tensor.sigmoid, Tensor.contiguous, Tensor.float, torch.as_tensor,
}  # fmt: skip
_LAYERS = {
    F.linear, F.conv1d, F.conv2d, F.conv3d, F.embedding, F.layer_norm, F.group_norm, F.max_pool1d, F.max_pool2d, F.max_pool3d,
    F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d,
    F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d, F.instance_norm,
    torch.max_pool1d, torch.max_pool2d, torch.max_pool3d, torch.conv1d, torch.conv2d, torch.conv3d,
    *([F.rms_norm] if hasattr(F, "rms_norm") else []),
}  # fmt: skip
_DROPOUT = {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d}
_SUMS = {torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__}
_RESHAPES = {
    torch.flatten,
    Tensor.flatten,
    Tensor.view,
    Tensor.reshape,
    torch.reshape,
    Tensor.unflatten,
    torch.unflatten,
}
_ALONG = {F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, Tensor.softmax, Tensor.log_softmax}
_FACTS = {"__get__", "size", "dim", "ndimension", "numel", "is_floating_point", "__len__", "is_contiguous"}


class MixesRecords(Exception):
    """A function that is not known to treat each record alone."""


def treats_records_alone(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call, looked at before it is made, is known to keep records apart; reshapes are checked after it."""
    if func in _POINTWISE or func in _LAYERS or func in _DROPOUT or func in _RESHAPES:
        return True
    if func in _SUMS:  # a residual connection: two tensors of one shape
        two = [value for value in args if isinstance(value, Tensor)]
        return len(two) == 2 and len(args) == 2 and two[0].shape == two[1].shape and not kwargs
    if func is F.pad:  # from the last dimension on, and never along the records
        pad = kwargs.get("pad", args[1] if len(args) > 1 else ())
        return bool(len(pad) <= 2 * (args[0].dim() - 1))
    if func in _ALONG:
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        return isinstance(dim, int) and dim % args[0].dim() != 0
    return getattr(func, "__name__", "") in _FACTS


def check_reshape(func: Any, args: Any, result: Any) -> None:
    """A reshape that keeps the first dimension maps every record to itself."""
    if func in _RESHAPES and result.shape[:1] != args[0].shape[:1]:
        raise MixesRecords(func)


class RecordWise(TorchFunctionMode):
    """Raises `MixesRecords` at the first function that is not known to treat each record alone."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not treats_records_alone(func, args, kwargs):
            raise MixesRecords(func)
        result = func(*args, **kwargs)
        check_reshape(func, args, result)
        return result


def known_record_wise(loss: Callable[..., Any]) -> bool:
    """Whether a loss is one of the library's own, which look at each record alone."""
    return (loss.func if isinstance(loss, functools.partial) else loss) in RECORD_WISE


def losses_apart(loss: Callable[..., Tensor], outputs: Tensor, y: Tensor, size: int) -> Tensor:
    """The losses of groups of `size` records, each group alone, unless the loss is known to be record-wise."""
    if known_record_wise(loss):
        return loss(outputs, y)
    return torch.cat(
        [loss(some, of) for some, of in zip(torch.split(outputs, size), torch.split(y, size), strict=True)]
    )
