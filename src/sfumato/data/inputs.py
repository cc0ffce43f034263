"""Records with several inputs, such as `input_ids` and `attention_mask`: one row of one tensor each, as all other records are.

So everything that draws, clips, stores and names records works on them as it is; they come apart before the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from sfumato.errors import DataError

Several: TypeAlias = Mapping[str, Tensor] | tuple[Tensor, ...]
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_REAL = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Inputs:
    """What the inputs of a record are: shapes and types, and names if they are passed by name. All of it is public.

    Each value is held exactly. Where all are real numbers a row has float32, which may be computed with; else int64, in which
    a real number is its 32 bits: a row of words must not be mistaken for numbers.

    >>> several = {"ids": torch.tensor([[7, 8]]), "scale": torch.tensor([0.5])}
    >>> inputs = Inputs.of(several)
    >>> print(inputs, inputs.pack(several))
    ids int64[2], scale float32 tensor([[         7,          8, 1056964608]])
    >>> inputs.unpack(inputs.pack(several))
    {'ids': tensor([[7, 8]]), 'scale': tensor([0.5000])}
    """

    names: tuple[str, ...]  # none: they are passed by place
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[torch.dtype, ...]

    @staticmethod
    def of(several: Several, what: str = "a record") -> Inputs:
        """Of some records; `what` names them in errors. The order of names does not matter."""
        named = dict(sorted(several.items())) if isinstance(several, Mapping) else dict(enumerate(several))
        if not named:
            raise DataError(f"{what} has no input. Give x, one record per row.")
        for name, value in named.items():
            if value.dtype not in (*_WHOLE, *_REAL):
                raise DataError(f"{what}, {name}: {value.dtype} is not known. Give whole numbers or float32.")
        if len({len(value) for value in named.values()}) > 1:
            counts = ", ".join(f"{name} {len(value)}" for name, value in named.items())
            raise DataError(f"{what}: its inputs differ in the number of records: {counts}. Give one row per record.")
        names = tuple(map(str, named)) if isinstance(several, Mapping) else ()
        return Inputs(names, tuple(tuple(v.shape[1:]) for v in named.values()), tuple(v.dtype for v in named.values()))

    def __str__(self) -> str:
        words = self.names or [f"input {place}" for place in range(len(self.shapes))]
        types = [str(kind).removeprefix("torch.") for kind in self.types]
        sides = ["x".join(map(str, shape)) for shape in self.shapes]
        parts = zip(words, types, sides, strict=True)
        return ", ".join(f"{word} {kind}[{side}]" if side else f"{word} {kind}" for word, kind, side in parts)

    @property
    def real(self) -> bool:
        """Whether a row holds real numbers."""
        return all(kind in _REAL for kind in self.types)

    def pack(self, several: Several) -> Tensor:
        """One row for each record."""
        values = [several[name] for name in self.names] if isinstance(several, Mapping) else list(several)
        return torch.cat([self._held(value).reshape(len(value), math.prod(value.shape[1:])) for value in values], 1)

    def _held(self, value: Tensor) -> Tensor:
        if self.real or value.dtype in _WHOLE:
            return value.float() if self.real else value.long()
        return value.float().view(torch.int32).long()

    def unpack(self, x: Tensor) -> dict[str, Tensor] | tuple[Tensor, ...]:
        """What was packed, of the same types, to the bit."""
        sizes = [math.prod(shape) for shape in self.shapes]
        found = []
        for part, shape, kind in zip(torch.split(x, sizes, dim=1), self.shapes, self.types, strict=True):
            if kind in _REAL and not self.real:
                part = part.to(torch.int32).view(torch.float32)
            found.append(part.to(kind).reshape(x.shape[0], *shape))
        return dict(zip(self.names, found, strict=True)) if self.names else tuple(found)

    def made_up(self, x: Tensor) -> Tensor:
        """Rows with the real numbers of `x`, zeros where whole ones are, and ones in masks: any model knows word 0, and looks
        at something.
        """
        parts = torch.split(x, [math.prod(shape) for shape in self.shapes], dim=1)
        names = self.names or ("",) * len(parts)
        filled = [
            part.to(kind) if kind in _REAL else torch.full_like(part, kind == torch.bool or "mask" in name, dtype=kind)
            for part, kind, name in zip(parts, self.types, names, strict=True)
        ]
        return torch.cat([self._held(part) for part in filled], 1)
