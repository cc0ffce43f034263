"""How many records are in work at once: fewer wait for each layer too often, more do not stay in a core's cache."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

_NUMBERS = 2**23  # that the layers give for all records in work: 32 MiB
_MOST = 1024  # linear models gain nothing by more
_WRITTEN_OUT = 2**26  # numbers of gradients, where those of single records must be formed: 256 MiB


def suited(module: nn.Module, x: Tensor, dimension: int) -> int:
    """The number that suits a module with `dimension` trained parameters and records like those of `x`.

    It depends on shapes only, so it is the same in every worker and after a restart.

    >>> suited(nn.Linear(784, 10), torch.zeros(5, 784), 7850)
    1024
    """
    given = [x[0].numel()]

    def count(_layer: nn.Module, _inputs: object, output: object) -> None:
        parts = output if isinstance(output, tuple) else (output,)
        given.extend(part.numel() for part in parts if isinstance(part, Tensor))

    tried = copy.deepcopy(module).eval()
    for layer in tried.modules():
        if not any(layer.children()):
            layer.register_forward_hook(count)
    with torch.no_grad():
        tried(torch.zeros_like(x[:1]))
    return max(1, min(_MOST, _NUMBERS // sum(given), _WRITTEN_OUT // dimension))
