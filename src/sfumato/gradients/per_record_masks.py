"""Dropout whose masks come from a key, so that the clipped sum is a pure function of its arguments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from sfumato.errors import BadValue

_WHOLE = (functional.dropout,)
_BY_CHANNEL = (functional.dropout1d, functional.dropout2d, functional.dropout3d)
_RANDOM = (
    torch.rand,
    torch.randn,
    torch.rand_like,
    torch.randn_like,
    torch.randint,
    torch.randperm,
    torch.bernoulli,
    torch.normal,
    torch.dropout,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    functional.gumbel_softmax,
    functional.rrelu,
)


class KeyedMasks(TorchFunctionMode):
    """Draws dropout masks from a generator; without one, `off` leaves dropout out and otherwise it is refused.

    `asked` says whether there was any dropout: a model without it runs faster when no one watches its functions.
    """

    def __init__(self, generator: torch.Generator | None = None, off: bool = False) -> None:
        super().__init__()
        self.generator, self.off, self.asked = generator, off, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _WHOLE or func in _BY_CHANNEL:
            return self._dropout(func in _BY_CHANNEL, *args, **kwargs)
        if func in _RANDOM:
            raise BadValue(
                f"the model draws random numbers by {func.__name__}, which no key controls, so a step could not be replayed. "
                "Use nn.Dropout, or nothing random, in the forward pass."
            )
        return func(*args, **kwargs)

    def _dropout(
        self, by_channel: bool, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0.0:
            return input
        self.asked = True
        if self.off:
            return input
        if self.generator is None:
            raise BadValue(
                "the model has dropout in training mode and no key was given. Pass key=..., or call .eval()."
            )
        if p == 1.0:
            return input * 0.0
        shape = (*input.shape[:2], *[1] * (input.dim() - 2)) if by_channel else input.shape
        return input * (torch.rand(shape, generator=self.generator) >= p) / (1.0 - p)
