"""Gradients of linear layers as the products that they are: a step then adds them to the weights at once.

The gradient of a linear layer's weight is g^T x, where x went in and g is the gradient of what came out. Written out it is as
large as the weight, and the step reads it again; a large layer spends more time on that than on the product itself. Here both
factors are kept, and `descend` computes w - lr g^T x in one pass over the weight: the same step up to rounding.

Only for plain chains of well-known layers (`is_plain_chain`): there a forward and a backward pass reach each layer as often as
it is called, nobody else holds its input or its gradient, and no input is a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

Factors = tuple[torch.Tensor, torch.Tensor]  # g [clients, records, out], x [clients, records, in]

_LARGE = 2**15  # coordinates of a weight from which on it pays


class Products:
    """The products of one backward pass, by the name of the weight. A layer that is used twice has two."""

    def __init__(self) -> None:
        self.of: dict[str, list[Factors]] = {}
        self._names: dict[int, str] = {}

    def expect(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """These tensors are what the forward pass will see as the model's parameters."""
        self._names = {id(value): name for name, value in parameters.items()}

    def linear(self, clients: int, x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor | None:
        """`F.linear`, one weight [out, in] for each client; None where the ordinary way is as good, or must be taken."""
        name = self._names.get(id(weight))
        if name is None or math.prod(weight.shape[-2:]) < _LARGE or (bias is not None and id(bias) not in self._names):
            return None
        if x.dtype != weight.dtype or torch.is_autocast_enabled(x.device.type):
            return None
        own = weight if weight.dim() == 3 else weight[None]
        shift = None if bias is None else bias.reshape(clients, -1, 1)
        y: torch.Tensor = _Linear.apply(x, own, shift, self.of.setdefault(name, []))  # type: ignore[no-untyped-call]
        return y

    def descend(
        self, parameters: Mapping[str, torch.Tensor], gradients: Sequence[torch.Tensor], lr: float, decay: float
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Step along the products in place, weight decay included; give back the other parameters and their gradients."""
        leaves, others = [], []
        for (name, leaf), gradient in zip(parameters.items(), gradients, strict=True):
            keep = 1.0 - lr * decay
            for g, x in self.of.get(name, ()):
                _add_product(leaf, g, x, -lr, keep)
                keep = 1.0
            if not self.of.get(name):
                leaves.append(leaf)
                others.append(gradient)
        return leaves, others


class _Linear(torch.autograd.Function):
    """y = x W^T + b, one W for each client; the backward pass gives W no gradient but keeps the factors of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, kept: list[Factors]) -> torch.Tensor:
        clients, out, inside = weight.shape
        rows = x.reshape(clients, -1, inside)
        ctx.save_for_backward(rows, weight)
        ctx.kept, ctx.shape = kept, x.shape
        columns = rows.transpose(1, 2)  # a product with the weight on the left is the faster one
        found = torch.bmm(weight, columns) if bias is None else torch.baddbmm(bias, weight, columns)
        y = x.new_empty(*x.shape[:-1], out)  # no view of anything: what follows may overwrite it
        y.view(clients, -1, out).copy_(found.transpose(1, 2))
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, None, torch.Tensor | None, None]:
        rows, weight = ctx.saved_tensors
        g = gradients[0].reshape(len(weight), -1, weight.shape[1])
        ctx.kept.append((g, rows))
        own = torch.bmm(g, weight).reshape(ctx.shape) if ctx.needs_input_grad[0] else None
        return own, None, g.sum(1)[:, :, None] if ctx.needs_input_grad[2] else None, None


def _add_product(to: torch.Tensor, g: torch.Tensor, x: torch.Tensor, scale: float, keep: float) -> None:
    """to <- keep * to + scale * g^T x, in place."""
    if len(to) == 1:
        to[0].addmm_(g[0].T, x[0], beta=keep, alpha=scale)
    else:
        to.baddbmm_(g.transpose(1, 2), x, beta=keep, alpha=scale)
