"""What a client sends is one row of one flat tensor; a `Layout` turns a module's trainable parameters into a row and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from sfumato.errors import BadValue


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the trainable parameters, in the module's own order.

    Frozen parameters and buffers stay out of the row: they are public, and no client changes them.

    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> layout.dimension, layout.names
    (8, ('weight', 'bias'))
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @staticmethod
    def of(module: nn.Module) -> Layout:
        trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not trainable:
            raise BadValue(
                f"{type(module).__name__} has no trainable parameter. Set requires_grad on what the clients shall train."
            )
        for name, parameter in trainable:
            if not parameter.is_floating_point() or parameter.is_complex():
                raise BadValue(
                    f"parameter {name!r} is {parameter.dtype}: a row holds real numbers. Freeze it or convert it."
                )
        return Layout(tuple(name for name, _ in trainable), tuple(p.shape for _, p in trainable))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def dimension(self) -> int:
        return sum(self.sizes)

    def row(self, module: nn.Module) -> torch.Tensor:
        """The module's trainable parameters, in float32."""
        tensors = dict(module.named_parameters())
        return torch.cat([tensors[name].detach().reshape(-1).float() for name in self.names])

    def split(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views by name; leading dimensions of `rows` are kept in front of each shape."""
        parts = torch.split(rows, list(self.sizes), dim=-1)
        return {
            name: part.reshape((*rows.shape[:-1], *shape))
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def check_whole(self, rows: torch.Tensor, who: object) -> None:
        """Refuse a piece that works on the model's own coordinates after one that changed the width."""
        if rows.shape[-1] != self.dimension:
            raise BadValue(
                f"{who} works on the model's own {self.dimension} coordinates, but its rows have {rows.shape[-1]}. "
                "Put it before SharedMask and AdaptiveClip."
            )

    def layers(self, rows: torch.Tensor, who: object) -> tuple[torch.Tensor, ...]:
        """The parts of whole rows, one per layer."""
        self.check_whole(rows, who)
        return torch.split(rows, list(self.sizes), dim=-1)

    def write(self, row: torch.Tensor, module: nn.Module) -> None:
        """Copy a row into the module's parameters."""
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in self.split(row).items():
                parameters[name].copy_(value)
