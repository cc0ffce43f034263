"""Records that are looked at one by one: what is not as declared becomes zero, and changes no other record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato.data.apart import DeclaredRecords, checked, mapped_apart
from sfumato.data.columns import Columns
from sfumato.data.faults import Faults, listed, out_of_memory
from sfumato.data.record_map import as_record_map
from sfumato.data.records import Records
from sfumato.data.tables import read_apart, read_table
from sfumato.errors import CodeFailed, DataError

TWO = DeclaredRecords("classification", 3, (2,))
X, Y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([0, 1, 2])


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X.half(), Y),
        (X.long(), Y),
        (X.to(torch.uint8), Y.float()),
        (X, Y.double()),
        (X, Y.to(torch.int16)),
        (X.bfloat16(), Y.to(torch.uint8)),
    ],
    ids=lambda part: str(part.dtype),
)
def test_numbers_of_another_type_become_those_that_are_declared(x: torch.Tensor, y: torch.Tensor) -> None:
    found, faults = checked(Records(x, y), TWO)
    assert (found.x.dtype, found.y.dtype) == (torch.float32, torch.int64)
    assert torch.equal(found.x, X) and torch.equal(found.y, Y) and not faults.records


def put(part: str, value: Any) -> Callable[[], Records]:
    """Records of which the second one has this value."""

    def made() -> Records:
        x, y = X.double(), Y.double()
        (x if part == "x" else y)[1] = value
        return Records(x, y)

    return made


@pytest.mark.parametrize(
    "made",
    [
        put("x", torch.nan),
        put("x", -torch.inf),
        put("x", 1e300),
        *(put("y", bad) for bad in (3, -1, 0.5, torch.nan, 1e300)),
    ],
)
def test_one_that_is_not_as_declared_is_zero_and_no_other(made: Callable[[], Records]) -> None:
    found, faults = checked(made(), TWO)
    assert list(faults.records) == [1]
    assert found.x.tolist() == [[1.0, 2.0], [0.0, 0.0], [5.0, 6.0]] and found.y.tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    ("declared", "x", "y", "bad"),
    [
        (replace(TWO, task="regression", target_type="float32"), X, torch.tensor([1e9, -5.0, torch.inf]), [2]),
        (DeclaredRecords("multi-label", 2, (2,), target_shape=(2,), target_type="float32"), X, X / 6, []),
        (DeclaredRecords("multi-label", 2, (2,), target_shape=(2,), target_type="float32"), X, X - 3, [0, 2]),
        (DeclaredRecords("next-character", 4, (2,), "int64", (2,)), X, X, [1, 2]),
        (replace(TWO, input_type="uint8"), X * 60, Y, [2]),
        (replace(TWO, input_type="bool"), X - 1, Y, [1, 2]),
        (replace(TWO, input_type="int64"), X + torch.tensor([[0.0], [0.5], [0.0]]), Y, [1]),
        (replace(TWO, input_shape=(3,)), X, Y, [0, 1, 2]),
        (replace(TWO, input_shape=(1, 2)), X, Y, [0, 1, 2]),
        (TWO, X.to(torch.complex64), Y, [0, 1, 2]),
        (TWO, (X[:, :1], X[:, 1:]), Y, [0, 1, 2]),
        (TWO, X[:0], Y[:0], []),
    ],
)
def test_which_records_are_at_fault(declared: DeclaredRecords, x: Any, y: torch.Tensor, bad: list[int]) -> None:
    found, faults = checked(Records(x, y), declared)
    assert sorted(faults.records) == bad
    assert found.x.shape == (len(y), *declared.input_shape) and found.y.shape == (len(y), *declared.target_shape)
    assert not found.x[bad].any() and not found.y[bad].any()


def inverse(x: torch.Tensor) -> torch.Tensor:
    """Raises on a record that begins with 3, and gives infinity for one that begins with 0."""
    if 3.0 in x[:, 0]:
        raise ValueError("three")
    return 1.0 / x


@pytest.mark.parametrize("batched", [True, False])
def test_features_of_a_record_that_raises_are_zero(batched: bool) -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, 6.0], [4.0, 4.0]])
    function, faults = inverse if batched else as_record_map(inverse), Faults()
    found = mapped_apart(Records(x, torch.ones(4)), function, torch.zeros(2, 2), faults)
    assert sorted(faults.records) == [1, 2]
    assert found.x.tolist() == [[1.0, 0.5], [0.0, 0.0], [0.0, 0.0], [0.25, 0.25]] and found.y.tolist() == [1, 0, 0, 1]


def whole_numbers(x: torch.Tensor) -> torch.Tensor:
    """One record becomes what no other does."""
    return x.to(torch.complex64) if 3.0 in x[:, 0] else x.long()


@pytest.mark.parametrize("batched", [True, False])
def test_what_one_record_becomes_decides_about_no_other(batched: bool) -> None:
    function, faults = whole_numbers if batched else as_record_map(whole_numbers), Faults()
    found = mapped_apart(Records(X, Y), function, torch.zeros(2, 2, dtype=torch.int64), faults)
    assert list(faults.records) == [1] and found.x.tolist() == [[1, 2], [0, 0], [5, 6]]


def test_features_of_another_shape_than_declared_count_as_zero() -> None:
    faults = Faults({0: "known"})
    found = mapped_apart(Records(X, Y), lambda x: x[:, :1], torch.zeros(2, 2), faults)
    assert sorted(faults.records) == [0, 1, 2] and faults.records[0] == "known" and not found.x.any()


COLUMNS = Columns(
    target="ill",
    classes=["no", "yes"],
    categories={"sex": ["f", "m"]},
    scale={"age": [0, 100], "day": ["2020-01-01", "2026-01-01"]},
)
HEADER, GOOD = (
    "age,sex,day,dose,ill\n",
    ["10,m,2021-01-01,1.1,no\n", "50,f,2022-02-02,0.1,yes\n", "70,f,2023-03-03,3,no\n"],
)


@pytest.mark.parametrize(
    "row",
    [
        "old,f,2022-02-02,2,yes\n",
        ",f,2022-02-02,2,yes\n",
        "50,x,2022-02-02,2,yes\n",
        "50,,2022-02-02,2,yes\n",
        "50,f,yesterday,2,yes\n",
        "50,f,2022-02-02,1e300,yes\n",
        '50,f,2022-02-02,"1,5",yes\n',
        "50,f,2022-02-02,2,perhaps\n",
        "50,f,2022-02-02,2,\n",
        '50,"f\nf",2022-02-02,2,yes\n',
    ],
)
def test_a_row_that_no_column_provides_for_changes_no_other(tmp_path: Path, row: str) -> None:
    table, declared = tmp_path / "a.csv", DeclaredRecords("classification", 2, (5,))
    table.write_text(HEADER + "".join(GOOD))
    alone, none = checked(read_apart(table, COLUMNS), declared)
    assert not none.records and torch.equal(alone.x, _all(table))
    table.write_text(HEADER + GOOD[0] + row + GOOD[1] + GOOD[2])
    found, faults = checked(read_apart(table, COLUMNS), declared)
    assert list(faults.records) == [1] and not found.x[1].any()
    assert torch.equal(found.x[[0, 2, 3]], alone.x) and found.y.tolist() == [0, 0, 1, 0]


def _all(table: Path) -> torch.Tensor:
    """As rows are read together."""
    from sfumato.data.encode import encode

    return encode(read_table(table, COLUMNS), COLUMNS.of(["age", "sex", "day", "dose", "ill"], "it"), "it").x


def test_decimal_commas_and_truths_are_read_cell_by_cell(tmp_path: Path) -> None:
    table, columns = tmp_path / "a.csv", Columns(target="n", classes=2)
    table.write_text("a;b;n\n1,5;True;0\n2.5;False;1\nx;True;1\n")
    found = read_apart(table, columns)
    assert (
        found.x[:2].tolist() == [[1.5, 1.0], [2.5, 0.0]] and found.x[2].isnan().all() and found.y[:2].tolist() == [0, 1]
    )


def test_a_table_without_rows_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,n\n")
    assert (
        checked(read_apart(tmp_path / "a.csv", Columns(target="n", classes=2)), replace(TWO, input_shape=(1,)))[0].count
        == 0
    )


def test_memory_is_no_records_fault() -> None:
    caused = CodeFailed("it failed")
    caused.__cause__ = MemoryError()
    assert out_of_memory(caused) and out_of_memory(RuntimeError("CUDA out of memory."))
    assert not out_of_memory(RuntimeError("shape mismatch")) and not out_of_memory(DataError("record 3"))


def test_drawn_numbers_without_those_at_fault() -> None:
    faults = Faults({2: "bad"})
    faults.note(5, ValueError("secret"))
    assert faults.without(torch.tensor([5, 0, 2, 7, 3, 12]), 10).tolist() == [0, 7, 3]
    assert "secret" not in str(faults.records) and listed(faults.records) == "records 2, 5"
