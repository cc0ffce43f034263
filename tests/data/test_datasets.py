"""Data sets of other libraries, one per client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from sfumato import Population
from sfumato.data import Records, records_of
from sfumato.errors import BadValue, DataError

X, Y = torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 1])


class Squares(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        if number >= 3:
            raise IndexError(number)
        return X[number], int(Y[number])


class Arrow:
    """A Hugging Face Dataset as far as its interface is used: `column_names`, a length, `with_format(type, columns)`, and
    a slice that gives a dictionary of columns, in tensors where they have one shape and in lists of tensors where not.
    """

    def __init__(self, columns: dict[str, Sequence[Any]], format: str | None = None) -> None:
        self._columns, self._format = columns, format

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def with_format(self, type: str | None = None, columns: list[str] | None = None) -> Arrow:
        return Arrow({name: self._columns[name] for name in columns or self._columns}, type)

    def __getitem__(self, key: int | slice | str) -> Any:
        if isinstance(key, str):
            return self._formatted(list(self._columns[key]))
        return {name: self._formatted(values[key]) for name, values in self._columns.items()}

    def _formatted(self, values: Any) -> Any:
        if self._format != "torch" or not isinstance(values, list):
            return values
        parts = [value if isinstance(value, str) else torch.tensor(value) for value in values]
        same = all(isinstance(part, torch.Tensor) and part.shape == parts[0].shape for part in parts)
        return torch.stack(parts) if same else parts


ARROW = Arrow({"text": ["a", "b", "c"], "ids": X.tolist(), "label": Y.tolist()})


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (Squares(), {}),
        (Subset(Squares(), [0, 1, 2]), {}),
        (TensorDataset(X, Y), {}),
        ((X, Y), {}),
        ((X.numpy(), Y.numpy()), {}),
        ((X.tolist(), Y.tolist()), {}),
        (Records(X, Y), {}),
        ([(X[n], Y[n]) for n in range(3)], {}),
        ([(X[n].tolist(), int(Y[n])) for n in range(3)], {}),
        ([{"x": X[n].numpy(), "y": Y[n]} for n in range(3)], {}),
        ([{"picture": X[n], "label": int(Y[n])} for n in range(3)], {"target": "label"}),
        ([{"a": X[n], "b": X[n], "label": int(Y[n])} for n in range(3)], {"target": "label", "input": "a"}),
        (ARROW, {"target": "label", "input": "ids"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_gives_the_same_records(data: Any, named: dict[str, str]) -> None:
    found = Population.from_datasets([data, (X, Y)], **named).client(0).train
    assert torch.equal(found.x, X) and torch.equal(found.y, Y)


@pytest.mark.parametrize(
    "data",
    [
        [{"input_ids": X[n], "attention_mask": X[n] > 1, "labels": int(Y[n])} for n in range(3)],
        [({"input_ids": X[n], "attention_mask": X[n] > 1}, Y[n]) for n in range(3)],
        Arrow({"input_ids": X.tolist(), "attention_mask": (X > 1).tolist(), "labels": Y.tolist()}),
    ],
    ids=["dictionaries", "pairs", "columns"],
)
def test_several_inputs_are_held_as_one_record(data: Any) -> None:
    found = Population.from_datasets([data]).client(0).train
    assert found.inputs is not None and torch.equal(found.y, Y)
    parts = found.inputs.unpack(found.x)
    assert (
        isinstance(parts, dict) and torch.equal(parts["input_ids"], X) and torch.equal(parts["attention_mask"], X > 1)
    )


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter([1])


@pytest.mark.parametrize(
    ("data", "named", "words"),
    [
        (Stream(), {}, "with a length"),
        ([], {}, "has no records"),
        ({"x": X, "y": Y}, {}, "is a dict"),
        ([1, 2], {}, "record 0 is a int"),
        ([{"x": X[0], "label": 1}], {}, "Name it with target="),
        ([{"x": X[0], "label": 1}], {"target": "labl"}, "Did you mean 'label'?"),
        ([{"y": 1}], {}, "has nothing beside 'y'"),
        ([{"a": X[0], "y": 1}], {"input": "b"}, "has no 'b'"),
        ([(X[0], 1), (torch.ones(3), 1)], {}, "of shapes (2,) and (3,)"),
        ([("a text", 1)], {}, "are a str each"),
        ([({"ids": X[0], "mask": "a"}, 1)], {}, "mask are a str each"),
        (TensorDataset(X, X, Y), {}, "3 tensors"),
        (ARROW, {"target": "label"}, "text are a str each"),
        (ARROW, {"target": "label", "input": "text"}, "cannot be one tensor"),
        (([[1.0], [2.0, 3.0]], [0, 1]), {}, "different lengths"),
    ],
)
def test_what_is_no_data_set_is_refused_by_client(data: Any, named: dict[str, str], words: str) -> None:
    with pytest.raises(DataError, match="client 1 of 'datasets'") as caught:
        Population.from_datasets([(X, Y), data], **named)
    assert words in str(caught.value)


def test_the_number_of_clients_is_declared_or_assumed() -> None:
    assumed = Population.from_datasets([Squares()] * 3, ids=["a", "b", "c"])
    assert assumed.caution("client") == ("the number of clients is public: 3, as 'datasets' has them",)
    assert assumed.is_fixed and assumed.ids == ("a", "b", "c")
    declared = Population.from_datasets([Squares()] * 3, clients=4)
    assert declared.caution("client") == () and declared.client(3).train.count == 0
    with pytest.raises(BadValue, match="one data set per client"):
        Population.from_datasets(X)


def test_one_data_set_is_read_for_a_function_too() -> None:
    lazy = Population.from_function(lambda number: tuple(records_of(Squares())), size=5)
    assert lazy.client(4).train.count == 3
    assert records_of((np.ones((2, 1), np.float64), np.zeros(2, np.int32))).x.dtype == torch.float32
