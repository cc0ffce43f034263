"""Dropout whose masks come from keys: a forward pass is a pure function, and can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from sfumato.errors import BadValue
from sfumato.key import Key

DROPOUT = {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d}
_RANDOM = {torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.bernoulli, torch.randint, torch.normal,
           torch.randperm, F.alpha_dropout, F.feature_alpha_dropout, F.gumbel_softmax, F.rrelu, torch.dropout}  # fmt: skip

Draw = Callable[[Sequence[int], float], Tensor | None]  # shape, share that is dropped -> what is kept


def refuse_randomness(func: Any) -> None:
    """Refuse a function that draws numbers of its own."""
    if func in _RANDOM:
        raise BadValue(
            f"the model draws random numbers by {func.__name__}, which no key controls, so a round could not be replayed. "
            "Use nn.Dropout, or nothing random, in the forward pass."
        )


def dropped_out(
    draw: Draw, func: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """What `func`, one of `DROPOUT`, gives with the mask that is drawn; without a mask, the input."""
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return input * 0.0
    shape = input.shape if func is F.dropout else input.shape[:2]  # each number, or each channel
    kept = draw(shape, p)
    if kept is None:
        return input
    return input * kept.reshape(*kept.shape, *[1] * (input.dim() - kept.dim())).to(input.device) / (1.0 - p)


class DropoutMasks:
    """Dropout masks from each client's own key, made when first asked for: most models have no dropout.

    A client draws masks for its own records only, so its masks do not depend on who shares its block.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys = keys
        self._generators: list[torch.Generator] = []

    def draw(self, counts: Sequence[int], width: int, shape: Sequence[int], p: float) -> Tensor:
        """What is kept, for `counts` records of each client, padded to `width` records."""
        self._generators = self._generators or [key.generator() for key in self.keys]
        kept = torch.ones(len(counts), width, *shape, dtype=torch.bool)
        for place, count in enumerate(counts):
            kept[place, :count] = torch.rand(count, *shape, generator=self._generators[place]) >= p
        return kept.flatten(0, 1)


class KeyedMasks(TorchFunctionMode):
    """Draws dropout masks from a generator; without one, `off` leaves dropout out and otherwise it is refused.

    `asked` says whether there was any dropout: a model without it runs faster when no one watches its functions.
    """

    def __init__(self, generator: torch.Generator | None = None, off: bool = False) -> None:
        super().__init__()
        self.generator, self.off, self.asked = generator, off, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in DROPOUT:
            return dropped_out(self._draw, func, *args, **(kwargs or {}))
        refuse_randomness(func)
        return func(*args, **(kwargs or {}))

    def _draw(self, shape: Sequence[int], p: float) -> Tensor | None:
        self.asked = True
        if self.off:
            return None
        if self.generator is None:
            raise BadValue("the model has dropout in training mode and no key was given. Pass key=... or call .eval().")
        return torch.rand(tuple(shape), generator=self.generator) >= p
