"""Gradients of linear layers as the products that they are: a step then adds them to the weights at once.

The gradient of a linear layer's weight is g^T x, where x went in and g is the gradient of what came out. Written out it is as
large as the weight, and the step reads it again; a large layer spends more time on that than on the product itself. Here both
factors are kept, and `descend` computes w - lr g^T x in one pass over the weight: the same step up to rounding.
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
        """`F.linear`, one weight [out, in] for each client; None where the ordinary way is as good."""
        name = self._names.get(id(weight))
        if name is None or math.prod(weight.shape[-2:]) < _LARGE or x.dtype != weight.dtype:
            return None
        stacked = weight if weight.dim() == 3 else weight[None]
        shift = None if bias is None else bias.reshape(clients, -1, 1)
        rows = x.reshape(clients, -1, x.shape[-1])
        y: torch.Tensor = _Linear.apply(rows, stacked, shift, self.of.setdefault(name, []))  # type: ignore[no-untyped-call]
        return y.reshape(*x.shape[:-1], stacked.shape[1])

    def descend(
        self, parameters: Mapping[str, torch.Tensor], gradients: Sequence[torch.Tensor], lr: float, decay: float
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Step along the products in place, weight decay included; give back the other parameters and their gradients."""
        leaves, others = [], []
        for (name, leaf), gradient in zip(parameters.items(), gradients, strict=True):
            factors = self.of.get(name, [])
            if factors and not gradient.numel():
                _add(leaf, factors, -lr, 1.0 - lr * decay)
                continue
            _add(gradient, factors, 1.0, 1.0)  # a weight that is also used in another way
            leaves.append(leaf)
            others.append(gradient)
        return leaves, others


class _Linear(torch.autograd.Function):
    """y = x W^T + b, one W for each client; the backward pass gives W no gradient but keeps the factors of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, kept: list[Factors]) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.kept = kept
        columns = x.transpose(1, 2)
        y = torch.bmm(weight, columns) if bias is None else torch.baddbmm(bias, weight, columns)
        return y.transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, None, torch.Tensor | None, None]:
        (g,) = gradients
        x, weight = ctx.saved_tensors
        ctx.kept.append((g, x))
        own = torch.bmm(g, weight) if ctx.needs_input_grad[0] else None
        return own, None, g.sum(1)[:, :, None] if ctx.needs_input_grad[2] else None, None


def _add(to: torch.Tensor, factors: Sequence[Factors], scale: float, keep: float) -> None:
    """to <- keep * to + scale * (the sum of the products), in place."""
    for g, x in factors:
        if len(to) == 1:
            to[0].addmm_(g[0].T, x[0], beta=keep, alpha=scale)
        else:
            to.baddbmm_(g.transpose(1, 2), x, beta=keep, alpha=scale)
        keep = 1.0
