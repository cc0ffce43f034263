"""What a client's row becomes depends on no other client's row: one may have a table refused, but changes nobody's record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from sfumato import Columns, Population
from sfumato.data.records import Records
from sfumato.errors import DataError

_LARGE = 2**53 + 1
_SECOND = ("2020-01-01T00:00:00", "2020-01-01T00:00:01")


def _own(population: Population) -> Records:
    return population.client(population.ids.index("own")).train


def _alike(one: Records, other: Records) -> bool:
    return all(torch.equal(a, b) and torch.equal(a.signbit(), b.signbit()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("own", "others", "declared"),
    [
        ({"x": 1}, {"x": True}, {"categories": {"x": ["1", "*"]}}),
        ({"x": 0}, {"x": False}, {"categories": {"x": ["0", "*"]}}),
        ({"y": 1}, {"y": True}, {"classes": ["1", "True"]}),
        ({"x": -0.0}, {"x": 1}, {}),
        ({"x": "2020-01-01T00:00:00.3"}, {"x": "2020-01-01T00:00:00.123456789"}, {"scale": {"x": _SECOND}}),
    ],
)
def test_what_others_rows_hold_changes_no_record(own: Any, others: Any, declared: Any) -> None:
    mine, theirs = ({"x": 1, "y": 1, "client": who} | row for who, row in (("own", own), ("other", others)))
    frames = [pd.DataFrame(rows) for rows in ([mine], [mine, theirs], [theirs, mine])]
    asked: dict[str, Any] = {"client": "client", "target": "y", "classes": 2} | declared
    alone, *beside = [_own(Population.from_dataframe(frame, **asked)) for frame in frames]
    assert all(_alike(alone, one) for one in beside)


@pytest.mark.parametrize(("own", "other"), [("-0", "0.5"), ("7", "")])
def test_the_type_that_a_file_gives_a_column_changes_no_record(tmp_path: Path, own: str, other: str) -> None:
    columns = Columns(target="y", client="client", classes=2, fill={"x": 0})
    alone, both = tmp_path / "alone.csv", tmp_path / "both.csv"
    alone.write_text(f"client,x,y\nown,{own},1\n")
    both.write_text(f"client,x,y\nother,{other},0\nown,{own},1\n")
    assert _alike(_own(Population.from_table(alone, columns)), _own(Population.from_table(both, columns)))


def test_a_target_that_is_a_number_keeps_its_sign_beside_fractions(tmp_path: Path) -> None:
    columns, found = Columns(target="y", client="client", numbers=True), []
    for name, more in (("alone.csv", ""), ("both.csv", "other,1,0.5\n")):
        (tmp_path / name).write_text(f"client,x,y\nown,1,9223372036854775807\n{more}")
        found.append(_own(Population.from_table(tmp_path / name, columns)))
    assert _alike(*found)
    assert found[0].y.item() > 0


def test_whole_numbers_that_floats_do_not_tell_apart_are_refused() -> None:
    rows = [{"client": "own", "x": _LARGE, "y": 1}, {"client": "other", "x": None, "y": 1}]
    asked: dict[str, Any] = {"client": "client", "target": "y", "categories": {"x": [_LARGE, "*"]}, "classes": 2}
    assert _own(Population.from_dataframe(pd.DataFrame(rows[:1]), **asked)).x.tolist() == [[1.0, 0.0]]
    with pytest.raises(DataError, match="as texts"):
        Population.from_dataframe(pd.DataFrame(rows), **asked)


def test_a_quote_that_is_not_closed_takes_nobodys_rows(tmp_path: Path) -> None:
    columns = Columns(target="y", client="client", classes=2, categories={"x": ["u", "v", "*"]})
    file, rows = tmp_path / "quotes.csv", "own,u,1\n" * 3
    file.write_text(f'client,x,y\nother,"v,1\n{rows}other,v",1\n')
    with pytest.raises(DataError, match="line break"):
        Population.from_table(file, columns)
    file.write_text(f'client,x,y\nother,"v",1\n{rows}other,"v, w",1\n')
    assert _own(Population.from_table(file, columns)).count == 3


def test_a_column_of_texts_does_not_change_how_numbers_are_read(tmp_path: Path) -> None:
    file = tmp_path / "semicolons.csv"
    file.write_text("client;x;z;note;y\nown;1.5;2,5;hi;1\n")
    columns = Columns(target="y", client="client", classes=2, features=["x", "z"])
    assert _own(Population.from_table(file, columns)).x.tolist() == [[1.5, 2.5]]
