"""Gradient inversion (Geiping et al. 2020, Inverting Gradients): pictures whose update points where the one that was seen does.

The attacker knows the model, the loss, the learning rate, and how many records and steps there were. It looks for pictures that
make the angle between their update and the seen one small, and that are smooth: 1 - cosine + weight * total variation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sfumato.audit.picture_measures import Pixels, total_variation
from sfumato.features.threads import one_thread
from sfumato.key import Key
from sfumato.update import Layout

_DECAYS = (3 / 8, 5 / 8, 7 / 8)  # of the steps, after which the step size is a tenth of what it was
_MOMENTUM = 0.9
_FEW = 4  # pictures, in which two threads would wait for each other
_UNROLLED = 8  # local steps that are followed one by one; of more, their first one stands for all


@dataclass(frozen=True)
class Known:
    """What the attacker knows: a model, how it was trained, and which values a pixel can have."""

    module: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    pixels: Pixels
    lr: float = 1.0
    steps: int = 1
    batch: int = 1

    def update(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """Where local training on these records moves each parameter, up to a positive factor; it can be differentiated by x."""
        names, leaves = zip(*self._trained(), strict=True)
        batches = _batches(len(x), self.batch, self.steps)
        if len(batches) == 1:
            return [-gradient for gradient in self._gradients(dict(self._trained()), x, y)]
        moved = list(leaves)
        for rows in batches:
            found = self._gradients(dict(zip(names, moved, strict=True)), x[rows], y[rows])
            moved = [leaf - self.lr * gradient for leaf, gradient in zip(moved, found, strict=True)]
        return [end - start for end, start in zip(moved, leaves, strict=True)]

    def _trained(self) -> list[tuple[str, Tensor]]:
        return [(name, value) for name, value in self.module.named_parameters() if value.requires_grad]

    def _gradients(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        loss = self.loss(functional_call(self.module, parameters, (x,)), y).mean()
        return torch.autograd.grad(loss, list(parameters.values()), create_graph=True)


def _batches(records: int, batch: int, steps: int) -> Sequence[Tensor]:
    """The records of each step in some order: which it was, nobody knows. All at once, if there are too many steps to follow."""
    everything = torch.arange(records)
    if steps > _UNROLLED:
        return [everything]
    passes = -(-steps * batch // records)
    return [part for _ in range(passes) for part in torch.split(everything, batch)][:steps]


@dataclass(frozen=True)
class Search:
    """How pictures are looked for: Adam on the signs of their gradients, from normal noise of a key.

    The mean square of signs is 1, so that Adam is momentum.
    """

    iterations: int = 1200
    step: float = 0.1
    smooth: float = 1e-2

    def __call__(self, known: Known, seen: Tensor, labels: Tensor, shape: tuple[int, ...], key: Key) -> Tensor:
        """Pictures of this shape, one for each label, for an update that was seen as a row."""
        target = list(Layout.of(known.module).split(seen.float()).values())
        size = torch.sqrt(sum((part * part).sum() for part in target))  # type: ignore[arg-type]
        start = key.child("start").normal(len(labels), *shape, stddev=0.3).float()
        with one_thread() if len(labels) <= _FEW else nullcontext():
            return self._found(known, target, size, labels, start)

    def _found(self, known: Known, target: list[Tensor], size: Tensor, labels: Tensor, start: Tensor) -> Tensor:
        guess, momentum = known.pixels.within(start), torch.zeros_like(start)
        for number in range(self.iterations):
            guess.requires_grad_(True)
            update = known.update(guess, labels)
            distance = _distance(update, target, size) + self.smooth * total_variation(guess)
            (gradient,) = torch.autograd.grad(distance, guess)
            momentum = _MOMENTUM * momentum + (1.0 - _MOMENTUM) * gradient.sign()
            step = self.step * 0.1 ** sum(number >= part * self.iterations for part in _DECAYS)
            guess = known.pixels.within(guess.detach() - step * momentum / (1.0 - _MOMENTUM ** (number + 1)))
        return guess


def _distance(update: Sequence[Tensor], target: Sequence[Tensor], size: Tensor) -> Tensor:
    """One less the cosine of the angle between them."""
    product = sum(((one * other).sum() for one, other in zip(update, target, strict=True)), torch.zeros(()))
    square = sum(((one * one).sum() for one in update), torch.zeros(()))
    return 1.0 - product / (torch.sqrt(square) * size + 1e-12)
