"""Which functions treat each record alone: only these may see several clients' records, or several clipped ones, at once.

A list of what is known, not a test of what is not: a function outside it (a batch statistic, a sum over the batch) or a backward
pass of the module's own sends the module to a way that keeps records apart by construction. So does a module that computes or
decides by how many records there are: it gets a number that only reshapes can take.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from sfumato.errors import BadValue
from sfumato.gradients.channels_last import CONVOLUTIONS, reads_its_image
from sfumato.gradients.masks import DROPOUT
from sfumato.measures import GRADIENTS, RECORD_WISE

Tensor = torch.Tensor
LossPerRecord = Callable[[Tensor, Tensor], Tensor]

_POINTWISE = {
    F.relu, F.relu6, F.gelu, F.silu, F.mish, F.elu, F.selu, F.celu, F.leaky_relu, F.softplus, F.tanh, F.sigmoid, F.hardtanh,
    F.hardswish, F.hardsigmoid, F.logsigmoid, F.softsign, F.tanhshrink, F.prelu, torch.relu, torch.relu_, torch.tanh,
    torch.sigmoid, Tensor.relu, Tensor.relu_, Tensor.tanh, Tensor.sigmoid, Tensor.contiguous, Tensor.clone, Tensor.float,
    torch.as_tensor,
}  # fmt: skip
_LAYERS = {
    F.linear, F.conv1d, F.embedding, F.group_norm, F.max_pool1d, F.max_pool2d, F.max_pool3d,
    F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d,
    F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d, F.instance_norm,
    torch.max_pool1d, torch.max_pool2d, torch.max_pool3d, torch.conv1d,
}  # fmt: skip
_NORMS = {F.layer_norm, F.rms_norm}
_SUMS = {torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__}
_RESHAPES = {
    torch.flatten, Tensor.flatten, Tensor.view, Tensor.reshape, torch.reshape, Tensor.unflatten, torch.unflatten,
}  # fmt: skip
_ALONG = {F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, Tensor.softmax, Tensor.log_softmax}
_FACTS = {"size", "dim", "ndimension", "is_floating_point", "is_contiguous"}
_ATTRIBUTES = {
    "shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "is_cuda", "is_sparse", "is_nested",
}  # fmt: skip


class MixesRecords(Exception):
    """A function that is not known to treat each record alone."""


def treats_records_alone(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call, looked at before it is made, is known to keep records apart; reshapes are looked at after it."""
    if func in CONVOLUTIONS:
        return reads_its_image(*args, **kwargs)
    if func in _POINTWISE or func in _LAYERS or func in DROPOUT or func in _RESHAPES:
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
    if func in _NORMS:  # over the last dimensions, and never over the records
        shape = kwargs.get("normalized_shape", args[1] if len(args) > 1 else ())
        return bool(len(shape) < args[0].dim())
    if func is F.batch_norm:  # in evaluation it is a map of each record, by statistics that are there
        return not kwargs.get("training", args[5] if len(args) > 5 else False)
    name = getattr(func, "__name__", "")
    if name == "__get__":  # x.shape and the like, but not x.T
        return getattr(getattr(func, "__self__", None), "__name__", "") in _ATTRIBUTES
    return name in _FACTS


def call_record_wise(func: Any, args: Any, kwargs: Any) -> Any:
    """Make a call that is known to treat each record alone; any other raises `MixesRecords`."""
    if not treats_records_alone(func, args, kwargs):
        raise MixesRecords(func)
    result = func(*args, **kwargs)
    if func in _RESHAPES and result.shape[:1] != args[0].shape[:1]:  # those that keep it map every record to itself
        raise MixesRecords(func)
    if isinstance(result, torch.Size):
        return torch.Size([Count(result[0]), *result[1:]]) if result else result
    if func is Tensor.size:  # along one dimension
        dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        return Count(result) if dim % args[0].dim() == 0 else result
    return result


class Count(int):
    """How many records there are, of all clients that share a block or in a batch: a shape may hold it, nothing may depend on it.

    A reshape reads it as the number that it is. What would compute with it or compare it raises `MixesRecords`.
    """


def _depends(self: Count, *args: Any) -> Any:
    raise MixesRecords(int)


_LEFT = {"__getattribute__", "__getnewargs__", "__index__"}
for _name, _member in vars(int).items():
    if getattr(_member, "__objclass__", None) is int and _name not in _LEFT:
        setattr(Count, _name, _depends)


class RecordWise(TorchFunctionMode):
    """Raises `MixesRecords` at the first function that is not known to treat each record alone."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call_record_wise(func, args, kwargs or {})


def has_own_backward(output: Tensor, *but: type[torch.autograd.Function]) -> bool:
    """Whether a backward pass from here meets a function of somebody's own, which no list can know (`but` are known)."""
    waiting, seen = [output.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction) and node._forward_cls not in but:
            return True
        waiting.extend(before for before, _ in node.next_functions)
    return False


def losses_apart(loss: Callable[..., Tensor], outputs: Tensor, y: Tensor, size: int) -> Tensor:
    """The losses of groups of `size` records, each group alone, unless it is one of the library's own, which are record-wise."""
    function = loss.func if isinstance(loss, functools.partial) else loss
    if any(function is known for known in RECORD_WISE):  # a user's own may have no hash
        return loss(outputs, y)
    return torch.cat([loss(one, of) for one, of in zip(torch.split(outputs, size), torch.split(y, size), strict=True)])


def losses_of(loss: Callable[..., Tensor], outputs: Tensor, y: Tensor, records: int) -> Tensor:
    """The loss of every record; refused when it is not one number per record."""
    losses = loss(outputs, y)
    if losses.shape != (records,):
        raise BadValue(
            f"the loss of {records} records has shape {tuple(losses.shape)}: one number per record is needed. "
            "Use reduction='none' and reduce only over a record's own parts."
        )
    return losses


def gradient_at_outputs(
    loss: Callable[..., Tensor], outputs: Tensor, y: Tensor, weights: Tensor | float = 1.0, size: int = 1
) -> Tensor:
    """The gradient of the weighted sum of the losses, groups of `size` records apart; a new tensor, which may be written to."""
    gradient = next((gradient for known, gradient in GRADIENTS.items() if known is loss), None)
    if gradient is not None and outputs.dim() == 2:
        return gradient(outputs, y).mul_(weights[:, None] if isinstance(weights, Tensor) else weights)
    outputs = outputs.detach().requires_grad_()
    with torch.enable_grad():
        losses = losses_of(functools.partial(losses_apart, loss, size=size), outputs, y, len(outputs))
    share = weights.to(losses) if isinstance(weights, Tensor) else torch.full_like(losses, weights)
    (found,) = torch.autograd.grad(losses, outputs, share)
    return found.clone(memory_format=torch.contiguous_format)
