"""An owner's records looked at one by one: those that are not what the owner declares become zeros, and are marked.

The map from what was loaded to what is trained on treats each record by itself. So neighbouring data stay neighbouring, and what is
proven for one record holds for whatever the record was: a label out of range, NaN, a number that float32 cannot hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.data.faults import Faults, out_of_memory
from sfumato.data.record_map import Map
from sfumato.data.records import Records
from sfumato.errors import BadValue, nearest

TYPES = {str(kind).removeprefix("torch."): kind for kind in (torch.float32, torch.int64, torch.uint8, torch.bool)}
_CLASSES = ("classification", "next-character")  # tasks whose targets are numbers of outputs
_TASKS = (*_CLASSES, "multi-label", "regression")


@dataclass(frozen=True)
class DeclaredRecords:
    """What an owner declares of the records: what is learnt of them, and the shape and type of a record's inputs and target.

    These are public. `input_shape` is that of a record before any features.
    """

    task: str
    outputs: int
    input_shape: tuple[int, ...]
    input_type: str = "float32"
    target_shape: tuple[int, ...] = ()
    target_type: str = "int64"

    def __post_init__(self) -> None:
        if self.task not in _TASKS:
            raise BadValue(f"records.task={self.task!r}: {nearest(self.task, _TASKS)}")
        for name, kind in (("input_type", self.input_type), ("target_type", self.target_type)):
            if kind not in TYPES:
                raise BadValue(f"records.{name}={kind!r}: use one of {', '.join(TYPES)}.")
        for name, shape in (("input_shape", self.input_shape), ("target_shape", self.target_shape)):
            if len(shape) > 8 or min(shape, default=1) < 1:
                raise BadValue(f"records.{name}={list(shape)}: at most 8 whole numbers of at least 1.")
        if self.outputs < 1:
            raise BadValue(f"records.outputs={self.outputs}: a whole number of at least 1.")


def checked(records: Records, declared: DeclaredRecords) -> tuple[Records, Faults]:
    """The records in the declared shapes and types; those that have none such are zeros, and at fault.

    >>> declared = DeclaredRecords("classification", 3, (2,))
    >>> checked(Records(torch.tensor([[1.0, 2.0], [3.0, math.nan], [5.0, 6.0]]), torch.tensor([2, 0, 3])), declared)[1].records
    {1: 'its inputs are not finite float32 of shape 2', 2: 'its label is not among 0 to 2'}
    """
    count = min(len(records.x), len(records.y))
    x, bad = _converted(records.x[:count], declared.input_shape, TYPES[declared.input_type])
    if records.inputs is not None:
        bad = torch.ones_like(bad)
    y, wrong = _converted(records.y[:count], declared.target_shape, TYPES[declared.target_type])
    outside = _outside(y, declared)
    faults = Faults()
    for mask, why in (
        (bad, f"its inputs are not {_words(declared.input_shape, declared.input_type)}"),
        (wrong, f"its target is not {_words(declared.target_shape, declared.target_type)}"),
        (outside, _label(declared)),
    ):
        for record in mask.nonzero().flatten().tolist():
            faults.records.setdefault(record, why)
    at_fault = bad | wrong | outside
    return Records(_zeroed(x, at_fault), _zeroed(y, at_fault)), faults


def mapped_apart(records: Records, function: Map, example: Tensor, faults: Faults) -> Records:
    """The inputs of records, mapped; one that raises, or becomes something else than the example or not finite, is at fault.

    If anything is wrong with what all become together, each is mapped alone: no record decides about another one.
    """
    x = torch.zeros((records.count, *example.shape[1:]), dtype=example.dtype)
    every = torch.arange(records.count)
    kept = faults.without(every, records.count)
    try:
        found = function(records.x[kept])
        together = _fits(found, example)
    except Exception as error:
        if out_of_memory(error):
            raise
        together = False
    if together:
        x[kept] = found
    else:
        for record in kept.tolist():
            try:
                found = function(records.x[record : record + 1])
                if not _fits(found, example):
                    raise BadValue("it becomes something else than the declared records do")
                x[record] = found[0]
            except Exception as error:
                if out_of_memory(error):
                    raise
                faults.note(record, error)
    for record in (~_whole(x.isfinite())).nonzero().flatten().tolist():
        faults.records[record] = "its features are not finite"
    gone = torch.ones(records.count, dtype=torch.bool)
    gone[faults.without(every, records.count)] = False
    return Records(_zeroed(x, gone), _zeroed(records.y, gone))


def _fits(found: Tensor, example: Tensor) -> bool:
    return found.shape[1:] == example.shape[1:] and found.dtype == example.dtype


def _converted(values: Tensor, shape: tuple[int, ...], kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """The values in a type, zero where a record has none of that shape and type; and which records these are."""
    if values.shape[1:] != shape or values.is_complex():
        return torch.zeros((len(values), *shape), dtype=kind), torch.ones(len(values), dtype=torch.bool)
    good = values.float().isfinite()
    if kind is not torch.float32:
        low, high = {torch.bool: (0, 1), torch.uint8: (0, 255)}.get(kind, (-(2**53), 2**53))
        numbers = values.double()
        good &= (numbers == numbers.round()) & (numbers >= low) & (numbers <= high)
    bad = ~_whole(good)
    return _zeroed(values, bad).to(kind), bad


def _whole(good: Tensor) -> Tensor:
    """Of which records everything is good."""
    return good.reshape(len(good), math.prod(good.shape[1:])).all(1)


def _outside(y: Tensor, declared: DeclaredRecords) -> Tensor:
    """Which records have a target that the task does not know."""
    most = {"multi-label": 1, **dict.fromkeys(_CLASSES, declared.outputs - 1)}.get(declared.task, math.inf)
    if most is math.inf:
        return torch.zeros(len(y), dtype=torch.bool)
    return ~_whole((y >= 0) & (y <= most))


def _label(declared: DeclaredRecords) -> str:
    ends = "0 to 1" if declared.task == "multi-label" else f"0 to {declared.outputs - 1}"
    return f"its label is not among {ends}"


def _zeroed(values: Tensor, bad: Tensor) -> Tensor:
    """Zeros in place of some records; the tensor itself where there is none."""
    if not bool(bad.any()):
        return values
    return torch.where(bad.reshape(-1, *[1] * (values.dim() - 1)), torch.zeros_like(values), values)


def _words(shape: tuple[int, ...], kind: str) -> str:
    size = "x".join(map(str, shape))
    return f"{'finite ' if kind == 'float32' else ''}{kind}{f' of shape {size}' if size else ''}"
