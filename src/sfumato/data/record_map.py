"""Maps of records. A user's map gets one record at a time; only the library's own are given batches.

What is stated for one record rests on this: if it changes, no other record's inputs change. A map of a whole batch can break
that in one line (`x / x.max()`), and then one record moves the sum of the clipped gradients by all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from sfumato.errors import BadValue, CodeFailed

Map: TypeAlias = Callable[[Tensor], Tensor]  # [n, ...] to [n, ...], each record by itself
_Marked = TypeVar("_Marked", bound=Callable[..., Any])
_BATCHED: set[Any] = set()


def batched(thing: _Marked) -> _Marked:
    """Mark a class or a function of the library as a map that may be given batches.

    A test holds each of them to it, to the last bit. A class that inherits from a marked one is not marked.
    """
    _BATCHED.add(thing)
    return thing


def marked() -> frozenset[Any]:
    """All classes and functions that are marked so far."""
    return frozenset(_BATCHED)


@batched
def unchanged(x: Tensor) -> Tensor:
    """No map at all."""
    return x


def as_record_map(function: Any, name: str = "") -> Map:
    """The function, if it is a map of the library that takes batches; otherwise one that calls it for each record alone."""
    if not callable(function):
        raise BadValue(f"features {name}: a {type(function).__name__} maps nothing. Give a module or a function.")
    if isinstance(function, RecordMap) or type(function) in _BATCHED or _is_marked_function(function):
        known: Map = function
        return known
    if isinstance(function, nn.Module):  # the user's own stays as it is
        function = copy.deepcopy(function).eval().requires_grad_(False)
    return RecordMap(name or str(getattr(function, "__qualname__", type(function).__name__)), function)


def _is_marked_function(function: Any) -> bool:
    return any(function is one for one in _BATCHED)


class RecordFailed(CodeFailed):
    """A map that failed for one record. Its own words may hold values of that record: they are in `__cause__` only."""

    def __init__(self, name: str, record: int, why: str, whose: str = "") -> None:
        self.name, self.record, self.why = name, record, why
        where = f"{whose}, record {record}" if whose else f"record {record}"
        super().__init__(f"{where}: features {name}: {why}. Fix the function, or leave the record out.")

    def after(self, records: int) -> RecordFailed:
        """The same where so many records come before those that were mapped."""
        return RecordFailed(self.name, self.record + records, self.why)

    def of(self, whose: str) -> RecordFailed:
        """The same, with whose records were mapped."""
        return RecordFailed(self.name, self.record, self.why, whose)


@dataclass(frozen=True)
class RecordMap:
    """A user's function or frozen module, such as a pretrained network, called with one record at a time.

    Alone in a tensor of its own, a record has the same shape and the same place in memory as every other, so what it becomes
    depends on no other record. What draws random numbers, keeps something of what it has seen, or is made for batches whose
    records it mixes, is refused as far as a few made-up records can tell: no client's record decides it.
    """

    name: str
    function: Map = field(repr=False)

    def __call__(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self._check(tuple(x.shape[1:]), x.dtype)
            if not len(x):
                return self._mapped(x.new_zeros((1, *x.shape[1:])))[:0]
            rows: list[Tensor] = []
            for record, one in enumerate(torch.split(x, 1)):
                try:
                    found = self._mapped(one)
                except Exception as error:
                    raise RecordFailed(self.name, record, f"it raised {type(error).__name__}") from error
                if problem := _problem(found, rows[0] if rows else found):
                    raise RecordFailed(self.name, record, problem)
                rows.append(found)
        return torch.cat(rows)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee must add: weights that were learnt from clients' records would reveal them."""
        return (f"the features {self.name} were made without clients' data",)

    def _mapped(self, record: Tensor) -> Tensor:
        """What one record becomes, where the record lies; the function's parameters may lie elsewhere."""
        weights = self.function.parameters() if isinstance(self.function, nn.Module) else iter(())
        there = next((weight.device for weight in weights), record.device)
        found = self.function(record.clone(memory_format=torch.contiguous_format).to(there))
        if not isinstance(found, Tensor):
            return found
        return (found.float() if found.dtype == torch.float64 else found).to(record.device)

    @cached_property
    def _checked(self) -> set[tuple[tuple[int, ...], torch.dtype]]:
        """For which shapes and types the function was tried."""
        return set()

    def _check(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """Refuse a function that gives a made-up record two answers, or another one in a batch than alone."""
        if (shape, dtype) in self._checked:
            return
        both = _made_up(shape, dtype)
        try:
            first, second, again = (self._mapped(one) for one in (both[:1], both[1:], both[:1]))
        except Exception:  # not of that kind: real records will show it, one by one
            return
        if problem := _problem(first, first):
            raise BadValue(f"features {self.name}: {problem}. Give a tensor [1, numbers] for one record [1, ...].")
        if not torch.equal(first.nan_to_num(), again.nan_to_num()):
            raise BadValue(f"features {self.name}: called twice with one record, it gives two answers. Fix it.")
        if self._mixes(both, torch.cat([first, second]) if first.shape == second.shape else None):
            raise BadValue(
                f"features {self.name}: what a record becomes changes with the records beside it in a batch, and alone it "
                "means something else. Scale by constants that are public, not by those of a batch."
            )
        self._checked.add((shape, dtype))

    def _mixes(self, both: Tensor, alone: Tensor | None) -> bool:
        """Whether a map that takes batches gives a record something else when another is in its batch."""
        try:
            found = self._mapped(both)
        except Exception:  # it takes one record only
            return False
        if alone is None or not isinstance(found, Tensor) or found.shape != alone.shape:
            return False
        return not torch.allclose(found.float(), alone.float(), rtol=1e-2, atol=1e-4, equal_nan=True)


def _problem(found: Any, first: Any) -> str:
    """What is wrong with the answer for one record; empty, if nothing is."""
    if not isinstance(found, Tensor) or found.ndim < 2 or found.shape[0] != 1:
        return f"one record [1, ...] gives {tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__}"
    if found.shape != first.shape:
        return f"it gives shape {tuple(found.shape[1:])}, and {tuple(first.shape[1:])} for the record before"
    return ""


def _made_up(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Two records that differ: numbers from 0 to 1, or whole ones of 0 and 1, which any vocabulary has."""
    count = max(1, torch.Size(shape).numel())
    steps = (
        torch.arange(1, count + 1, dtype=torch.float64) * 0.6180339887498949
    ) % 1.0  # spread evenly, and not sorted
    both = torch.stack(
        [steps, 0.5 * steps.flip(0)] if dtype.is_floating_point else [0.0 * steps, (steps > 0.5).double()]
    )
    return both[:, : torch.Size(shape).numel()].reshape(2, *shape).to(dtype)
