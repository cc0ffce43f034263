"""The copy of a module that a worker trains with: the same function and the same parameters, a little faster."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import nn

_ACTIVATIONS = (nn.ReLU, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus)
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.LayerNorm, nn.GroupNorm, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool2d)
_PLAIN = (*_ACTIVATIONS, *_LAYERS, nn.Flatten, nn.Dropout, nn.Identity)


class _PoolFirst(nn.Sequential):
    """Runs a max-pool before the ReLU that it follows; the layers stay in their places for all who look at them."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The same function."""
        layers = list(self)
        for place in range(len(layers) - 1):
            if _may_swap(layers[place], layers[place + 1]):
                layers[place], layers[place + 1] = layers[place + 1], layers[place]
        for layer in layers:
            input = layer(input)
        return input


def working_copy(module: nn.Module) -> nn.Module:
    """A copy in which each max-pool of a Sequential runs before the ReLU that it follows.

    max and ReLU are both monotone, so max(relu(x)) = relu(max(x)), and their gradients agree too: where the maximum is
    positive, both reach the first place that attains it; elsewhere both are zero. A ReLU over a quarter of the places, forward
    and backward, is a quarter of the work. What a forward pass writes to the copy stays out of the module itself.
    """
    found = copy.deepcopy(module)
    for part in found.modules():
        if type(part) is nn.Sequential:
            part.__class__ = _PoolFirst
    return found


def is_plain_chain(module: nn.Module) -> bool:
    """Whether a module is a Sequential of well-known layers, all the way down, that nobody watches."""
    if type(module) in (nn.Sequential, _PoolFirst):
        return not _watched(module) and all(is_plain_chain(part) for part in cast(nn.Sequential, module))
    return type(module) in _PLAIN and not _watched(module)


def _may_swap(first: nn.Module, second: nn.Module) -> bool:
    if type(first) is not nn.ReLU or type(second) is not nn.MaxPool2d or _watched(first) or _watched(second):
        return False
    return not (first.inplace or second.return_indices or second.ceil_mode or second.padding not in (0, (0, 0)))


def _watched(part: nn.Module) -> bool:
    """Whether somebody looks at what goes in or out."""
    return bool(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks)
