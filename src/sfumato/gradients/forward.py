"""One forward pass for several clients at once, each with parameters of its own; or for one.

`Stacked` passes the records of all clients through the module as one batch, and replaces the functions that read a
parameter: a linear layer becomes one batched matrix product. Only functions that are known to treat each record alone may be
called; any other module is run under `torch.func.vmap`. Either way no client sees another's records or parameters, and
buffers are copies, so that nothing a forward pass writes outlives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from sfumato.gradients.channels_last import CONVOLUTIONS, convolution
from sfumato.gradients.masks import DROPOUT, DropoutMasks, dropped_out, refuse_randomness
from sfumato.gradients.recordwise import MixesRecords, call_record_wise, has_own_backward

Parameters = dict[str, Tensor]  # name -> [clients, *shape]


def called(module: nn.Module, parameters: Parameters, x: Tensor) -> Tensor:
    """The module's output with these parameters in place of its own, and copies of its buffers: what it writes is forgotten.

    Each place in a layer gets its value once. A layer may come twice under two names, and two layers may share a parameter.
    """
    names = {id(p): name for name, p in module.named_parameters()}
    copies: dict[int, Tensor] = {}
    values: Parameters = {}
    for prefix, layer in module.named_modules():
        for own, p in layer._parameters.items():
            if p is not None and names[id(p)] in parameters:
                values[f"{prefix}.{own}" if prefix else own] = parameters[names[id(p)]]
        for own, buffer in layer._buffers.items():
            if buffer is not None:
                values[f"{prefix}.{own}" if prefix else own] = copies.setdefault(id(buffer), buffer.clone())
    out: Tensor = functional_call(module, values, (x,), tie_weights=False)
    return out


@dataclass(frozen=True)
class Batch:
    """The records of one step, client after client, each padded to the same number."""

    x: Tensor
    counts: tuple[int, ...]
    masks: DropoutMasks

    @property
    def width(self) -> int:
        """How many places each client has."""
        return int(self.x.shape[0]) // len(self.counts)

    def kept(self, shape: Sequence[int], p: float) -> Tensor:
        """What dropout keeps of values of this shape, which have a place for each record of the batch."""
        return self.masks.draw(self.counts, self.width, shape[1:], p)


def _stacked_linear(clients: int, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if weight.dim() != 3 or (bias is not None and bias.dim() != 2):
        raise MixesRecords(F.linear)  # a frozen part, which all clients share: vmap can do that
    rows = x.reshape(clients, -1, x.shape[-1])
    columns = rows.transpose(1, 2)  # not the weight: its gradient then has the weight's own layout, and is added fast
    y = torch.bmm(weight, columns) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, columns)
    return y.transpose(1, 2).reshape(*x.shape[:-1], weight.shape[1])


def _affine(clients: int, x: Tensor, weight: Any, bias: Any, lead: int) -> Tensor:
    """Scale and shift each client's records by its own parameters, which begin at dimension `lead` of a record."""
    rows = x.reshape(clients, -1, *x.shape[1:])
    for parameter, apply in ((weight, torch.mul), (bias, torch.add)):
        if parameter is not None:
            tail = x.dim() - lead - (parameter.dim() - 1)
            rows = apply(rows, parameter.reshape(clients, *[1] * lead, *parameter.shape[1:], *[1] * tail))
    return rows.reshape(x.shape)


def _stacked_layer_norm(
    clients: int, x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    own = [parameter.dim() == len(normalized_shape) + 1 for parameter in (weight, bias) if parameter is not None]
    if not all(own) or len(normalized_shape) >= x.dim():
        raise MixesRecords(F.layer_norm)  # a frozen part, which all clients share, or a norm over records
    plain = F.layer_norm(x, normalized_shape, None, None, eps)
    return _affine(clients, plain, weight, bias, x.dim() - len(normalized_shape))


_RULES: dict[Any, Callable[..., Tensor]] = {F.linear: _stacked_linear, F.layer_norm: _stacked_layer_norm}


class _StackedMode(TorchFunctionMode):
    """Sends every function that reads a parameter to its rule, and dropout to the clients' own masks."""

    def __init__(self, parameters: Parameters, batch: Batch) -> None:
        super().__init__()
        self.own = {id(value) for value in parameters.values()}
        self.batch = batch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _RULES:
            return _RULES[func](len(self.batch.counts), *args, **kwargs)
        if func in DROPOUT:
            return dropped_out(self.batch.kept, func, *args, **kwargs)
        refuse_randomness(func)
        reads = any(id(value) in self.own for value in (*args, *kwargs.values()))
        if reads:
            raise MixesRecords(func)
        return call_record_wise(func, args, kwargs)


class _LoopMode(TorchFunctionMode):
    """Dropout masks come from the client's key, and no convolution reads beyond its image."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.batch = batch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in DROPOUT:
            return dropped_out(self.batch.kept, func, *args, **(kwargs or {}))
        refuse_randomness(func)
        if func in CONVOLUTIONS:
            return convolution(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Stacked:
    """Several clients at once. `vmapped` runs the module under vmap, for modules without a stacked rule."""

    module: nn.Module
    vmapped: bool = False

    def __call__(self, parameters: Parameters, batch: Batch) -> Tensor:
        if self.vmapped:
            return self._vmapped(parameters, batch)
        try:
            with _StackedMode(parameters, batch):
                out = called(self.module, parameters, batch.x)
        except MixesRecords:
            return self._vmapped(parameters, batch)
        return self._vmapped(parameters, batch) if has_own_backward(out) else out

    def _vmapped(self, parameters: Parameters, batch: Batch) -> Tensor:
        """All clients at once if their batches are full, else each alone: a place that repeats a record could enter a statistic."""
        run = vmap(lambda p, x: called(self.module, p, x))
        rows = batch.x.reshape(len(batch.counts), batch.width, *batch.x.shape[1:])
        if min(batch.counts) == batch.width:
            together: Tensor = run(parameters, rows)
            return together.flatten(0, 1)
        outputs = []
        for place, count in enumerate(batch.counts):
            one = slice(place, place + 1)
            out = run({name: value[one] for name, value in parameters.items()}, rows[one, :count])[0]
            outputs += [out, out.new_zeros(batch.width - count, *out.shape[1:])]
        return torch.cat(outputs)


@dataclass(frozen=True)
class OneByOne:
    """One client: the module as it is."""

    module: nn.Module

    def __call__(self, parameters: Parameters, batch: Batch) -> Tensor:
        own = {name: value.view(value.shape[1:]) for name, value in parameters.items()}
        with _LoopMode(batch):
            return called(self.module, own, batch.x)
