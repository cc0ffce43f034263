"""Names of columns: one that is there twice, also where pandas hides it, would make an input of the target."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from sfumato import Columns, Population, PublicData
from sfumato.errors import BadValue, DataError, SfumatoError
from tests.cli.conftest import Command, sfumato  # noqa: F401  # the fixture

COLUMNS = Columns(target="y", client="c", classes=2)
NAMED = Columns(target="y", client="c", classes=2, features=["x"])


def written(path: Path, header: str) -> Path:
    width = header.count(",") + 1
    path.write_text(f"{header}\n" + "".join(f"{row % 3}{',1' * (width - 1)}\n" for row in range(9)))
    return path


@pytest.mark.parametrize(
    ("header", "name", "places"),
    [
        ("c,y,x,y", "'y'", "2 and 4"),
        ("c,y,x,y ", "'y'", "2 and 4"),
        ('c,y,x,"y"', "'y'", "2 and 4"),
        ("c, y,x, y", "'y'", "2 and 4"),
        ("c,c,y,x", "'c'", "1 and 2"),
        ("c,y,x,x,x", "'x'", "3, 4 and 5"),
        ("c,y,a b,a  b", "'a b'", "3 and 4"),
    ],
)
@pytest.mark.parametrize("columns", [COLUMNS, NAMED], ids=["all others", "named"])
def test_a_name_that_is_there_twice_is_refused_with_its_places(
    tmp_path: Path, header: str, name: str, places: str, columns: Columns
) -> None:
    with pytest.raises(BadValue) as caught:
        Population.from_table(written(tmp_path / "a.csv", header), columns)
    assert name in str(caught.value) and places in str(caught.value)


def test_the_same_of_parquet_files_and_frames(tmp_path: Path) -> None:
    write_table(pa.table([[1], [0], [0.5], [0]], names=["c", "y", "x", "y"]), tmp_path / "a.parquet")
    frame = pd.DataFrame([[1, 0, 0.5, 0]], columns=["c", "y", "x", "y"])
    for call in (
        lambda: Population.from_table(tmp_path / "a.parquet", COLUMNS),
        lambda: Population.from_dataframe(frame, client="c", target="y", classes=2),
        lambda: PublicData.from_dataframe(frame, NAMED),
    ):
        with pytest.raises(BadValue, match="'y', in places 2 and 4"):
            call()


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("c,y,x,Y", ("'y'", "'Y'", "2 and 4")),
        ("c,y,x,y.1", ("'y'", "'y.1'", "2 and 4")),
        ("c,y.1,x,y", ("'y'", "'y.1'", "4 and 2")),
        ("c,y,is ill,IsIll", ("'is ill'", "'IsIll'", "3 and 4")),
        (",c,y,x", ("place 1 has no name",)),
        ("c,y,x,", ("place 4 has no name",)),
    ],
)
def test_what_may_be_one_column_twice_is_refused_unless_inputs_are_named(
    tmp_path: Path, header: str, names: tuple[str, ...]
) -> None:
    path = written(tmp_path / "a.csv", header)
    frame = pd.read_csv(path)
    for call in (
        lambda: Population.from_table(path, COLUMNS),
        lambda: Population.from_dataframe(frame, client="c", target="y", classes=2),
    ):
        with pytest.raises(BadValue) as caught:
            call()
        assert all(name in str(caught.value) for name in names) and "features=" in str(caught.value)
    if "x" in header:
        found = Population.from_table(path, NAMED)
        assert found.columns is not None and found.columns.features == ("x",)


def test_names_that_only_look_so_are_let_through(tmp_path: Path) -> None:
    found = Population.from_table(written(tmp_path / "a.csv", "c,y,x.1,v.10,yy"), COLUMNS)
    assert found.columns is not None and found.columns.features == ("x.1", "v.10", "yy")


def test_a_table_without_a_first_line_of_names_shows_no_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("secret,1,0.5\nother,0,0.5\n")
    with pytest.raises(BadValue, match="has no column 'y', 'c'") as caught:
        Population.from_table(tmp_path / "a.csv", COLUMNS)
    assert "secret" not in str(caught.value)


def test_the_label_is_no_input_on_the_command_line(sfumato: Command) -> None:  # noqa: F811
    written(Path("a.csv"), "c,y,x,y")
    words = (
        "train --data a.csv --client-column c --target-column y --outputs 2 --clients 3 --rounds 1 --noise-multiplier 1"
    )
    status, out, err = sfumato(*words.split())
    assert (status, out) == (2, "") and "'y', in places 2 and 4" in err


@pytest.mark.parametrize("value", ["1e39", "-1e300", "1e400", "inf", "-inf"])
def test_a_number_that_float32_does_not_hold_is_refused_without_a_range_and_moved_with_one(
    tmp_path: Path, value: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"c,y,x\na,1,0.5\nb,0,{value}\n")
    with pytest.raises(DataError, match="'x', row 2: .*float32") as caught:
        Population.from_table(path, COLUMNS)
    assert value not in str(caught.value)
    ranged = Columns(target="y", client="c", classes=2, scale={"x": (0, 1)})
    assert Population.from_table(path, ranged).client(1).train.x.item() == (-1.0 if value.startswith("-") else 1.0)
    with pytest.raises(DataError, match="target 'x', row 2: .*float32"):
        Population.from_table(path, Columns(target="x", client="c", numbers=True))


def test_a_declared_value_that_float32_does_not_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("c,y,x\na,1,\nb,0,1\n")
    with pytest.raises(BadValue, match="fill of 'x': 1e\\+39"):
        Population.from_table(path, Columns(target="y", client="c", classes=2, fill={"x": 1e39}))


def test_all_columns_that_do_not_fit_are_named_at_once() -> None:
    frame = pd.DataFrame({"c": ["a", "b"], "y": [0, 5], "u": [1.0, None], "v": ["p", "q"], "w": [1, 2]})
    with pytest.raises(SfumatoError) as caught:
        Population.from_dataframe(frame, client="c", target="y", classes=2)
    words = str(caught.value)
    assert "'u', row 2" in words and "'v', rows 1, 2" in words and "'y', row 2" in words and "'w'" not in words


@pytest.mark.parametrize("date", ["9999-12-31", "0001-01-01", "1600-02-29T12:00:00"])
def test_a_date_outside_of_what_nanoseconds_hold_is_moved_to_the_nearer_end(tmp_path: Path, date: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"c,y,x\na,1,{date}\nb,0,2021-01-01\n")
    ranged = Columns(target="y", client="c", classes=2, scale={"x": ("2020-01-01", "2022-01-01")})
    found = Population.from_table(path, ranged)
    assert found.client(0).train.x.item() == (1.0 if date > "2022" else -1.0)
    alone = tmp_path / "b.csv"
    alone.write_text("c,y,x\nb,0,2021-01-01\n")
    assert Population.from_table(alone, ranged).client(0).train.x.equal(found.client(1).train.x)
