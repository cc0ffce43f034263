"""Tables become clients by what is declared; what only rows know decides nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from sfumato import Budgets, Columns, Population, PublicData
from sfumato.data.origin import origin_of
from sfumato.data.tables import read_table
from sfumato.digest import digest
from sfumato.errors import BadValue, DataError, SfumatoError

ROWS = {
    "clinic": ["b", "a", "b", "c"],
    "age": [10, 20, 30, 200],
    "sex": ["f", "m", "m", "f"],
    "ill": ["no", "yes", "no", "yes"],
}
DECLARED: dict[str, Any] = {
    "client": "clinic",
    "target": "ill",
    "classes": ["no", "yes"],
    "categories": {"sex": ["f", "m"]},
    "scale": {"age": (0, 100)},
}


def frame(**changed: Any) -> pd.DataFrame:
    return pd.DataFrame({**ROWS, **changed})


def people(table: pd.DataFrame, **changed: Any) -> Population:
    return Population.from_dataframe(table, **{**DECLARED, **changed})


def records_of(population: Population) -> str:
    return digest([population.client(number) for number in range(population.size)])


def test_rows_become_the_records_of_their_clients() -> None:
    found = people(frame())
    assert (found.size, found.ids) == (3, ("a", "b", "c"))
    x, y = found.client(1).train
    assert torch.allclose(x, torch.tensor([[-0.8, 1.0, 0.0], [-0.4, 0.0, 1.0]])) and y.tolist() == [0, 0]
    assert found.client(2).train.x[0, 0] == 1.0, "what lies outside is moved to the nearer end"
    assert found.example is not None and found.example.x.shape == (2, 3) and not found.example.x.any()
    assert pickle.loads(pickle.dumps(found)).client(0).train.count == 1


def test_test_data_are_written_as_the_clients_are_whatever_the_order_of_columns() -> None:
    found = people(frame())
    assert found.columns is not None
    test = PublicData.from_dataframe(frame()[["ill", "sex", "age"]], found.columns).records
    assert torch.equal(test.x[1], found.client(0).train.x[0]) and test.y.tolist() == [0, 1, 0, 1]
    with pytest.raises(BadValue, match="columns=population.columns"):
        PublicData.from_dataframe(frame(), Columns(target="ill", client="clinic"))


def test_neither_the_order_of_rows_nor_who_wrote_them_changes_who_a_client_is() -> None:
    one, other = people(frame()), people(frame().iloc[::-1])
    assert one.identity == other.identity and records_of(one) != records_of(other)
    assert people(frame(age=[1, 2, 3, 4])).identity == one.identity
    assert people(frame(clinic=["b", "a", "b", "d"])).identity != one.identity


def test_declared_ids_keep_everybody_in_place_when_somebody_leaves() -> None:
    everybody = people(frame(), clients=["d", "c", "b", "a"])
    without = people(frame().iloc[[1, 3]], clients=["a", "b", "c", "d"])
    assert everybody.identity == without.identity and everybody.ids == without.ids == ("a", "b", "c", "d")
    assert [without.client(number).train.count for number in range(4)] == [1, 0, 1, 0]
    assert without.caution("client") == () == everybody.caution("client")
    with pytest.raises(DataError, match="not among the declared clients") as caught:
        people(frame(), clients=["a", "b"])
    assert "'c'" not in str(caught.value)


def test_a_number_of_clients_that_was_counted_is_said_in_guarantees() -> None:
    assert people(frame()).caution("client") == ("the number of clients is public: 3, as 'frame' has them",)
    declared = people(frame(), clients=5)
    assert declared.size == 5 and declared.caution("client") == () and declared.client(4).train.count == 0
    assert people(frame(), clients=3).caution("client") == ()
    with pytest.raises(BadValue, match="Declare at least 3"):
        people(frame(), clients=2)


@pytest.mark.parametrize("pair", [("North", "north"), ("7", "07"), ("a b", "a  b"), ("Ｎ", "N"), ("7", "7.0")])
def test_spellings_of_one_id_are_not_taken_for_two_clients(pair: tuple[str, str]) -> None:
    table = frame(clinic=[*pair, "x", "y"])
    with pytest.raises(DataError, match="write them alike"):
        people(table)
    if pair != ("7", "7.0"):
        assert people(table, clients=[*pair, "x", "y"]).size == 4, "who declares both says that they are two"


def test_one_id_written_in_two_ways_is_one_client() -> None:
    assert people(frame(clinic=pd.Series([7, "7 ", 7.0, "x"], dtype=object))).ids == ("7", "x")
    assert people(frame(clinic=["é", "é", "x", "y"])).size == 3
    assert people(frame(clinic=[10, 9, 9, 2])).ids == (2, 9, 10), "numbers, in their order"


@pytest.mark.parametrize(
    ("changed", "told", "words"),
    [
        ({"clinic": ["a", None, "b", "c"]}, {}, "a row has no client"),
        ({"clinic": ["a", " ", "b", "c"]}, {}, "a row has no client"),
        ({}, {"categories": {}}, "categories={'sex': [...]}"),
        ({}, {"categories": {"sex": ["f"]}}, "none of the declared ['f']"),
        ({"sex": pd.Categorical(ROWS["sex"])}, {"categories": {}}, "not learnt from clients' rows"),
        ({}, {"classes": None}, "classes=[...]"),
        ({}, {"classes": ["no", "maybe"]}, "none of the declared ['no', 'maybe']"),
        ({"ill": [0, 1, 2, 3]}, {"classes": 3}, "not among 0 to 2"),
        ({"ill": [0, 1, 0.5, 1]}, {"classes": 3}, "no whole number"),
        ({"ill": [0, 1, None, 1]}, {"classes": None}, "values are missing"),
        ({"age": [1, None, 3, 4]}, {}, "fill={'age': ...}"),
        ({"age": [1, float("inf"), 3, 4]}, {"scale": {}}, "no finite numbers"),
        ({"age": pd.to_datetime(["2020-01-01"] * 4)}, {"scale": {}}, "dates need a range"),
        ({"age": ["1.2.2020"] * 4}, {"scale": {"age": ("2020-01-01", "2021-01-01")}}, "no dates such as"),
        ({}, {"scale": {"age": ("2020-01-01", "2021-01-01")}}, "numbers, though its scale has dates"),
        ({}, {"client": "clinics"}, "Did you mean 'clinic'?"),
        ({}, {"target": "il"}, "Did you mean 'ill'?"),
        ({}, {"features": ["age", "sx"]}, "has no column 'sx'. Did you mean 'sex'?"),
        ({}, {"scale": {"agee": (0, 1)}}, "Did you mean 'age'?"),
        ({}, {"features": ["age"]}, "'sex' is not among the features"),
        ({}, {"features": ["ill", "age", "sex"]}, "named twice"),
        ({}, {"scale": {"age": (100, 0)}}, "is no range"),
        ({}, {"categories": {"sex": ["f", "f"]}}, "names a value twice"),
        ({}, {"classes": ["no"]}, "at least 2"),
        ({}, {"fill": {"age": "old"}}, "'old' is no value of that column"),
        ({}, {"clients": "abc"}, "is one text"),
    ],
)
def test_what_is_not_declared_or_not_there_is_refused_with_its_fix(changed: Any, told: Any, words: str) -> None:
    with pytest.raises(SfumatoError) as caught:
        people(frame(**changed), **told)
    assert words in str(caught.value)


def test_no_refusal_shows_a_value_that_only_rows_know() -> None:
    for changed in ({"sex": ["f", "secret", "m", "f"]}, {"ill": ["no", "secret", "no", "no"]}):
        with pytest.raises(DataError) as caught:
            people(frame(**changed))
        assert "secret" not in str(caught.value)


def test_missing_values_dates_and_others_as_declared() -> None:
    table = frame(
        age=[None, 20, 30, 40],
        sex=["f", None, "x", "m"],
        day=["2020-01-01", "2022-01-01", None, "2024-01-01"],
        smokes=[True, False, True, True],
        stage=[1.0, 2.0, None, 1.0],
    )
    found = people(
        table,
        categories={"sex": ["f", "m", "*"], "stage": [1, 2]},
        scale={"age": (0, 100), "day": ("2020-01-01", "2024-01-01")},
        fill={"age": 50, "day": "2020-01-01", "stage": 2},
    )
    assert found.columns is not None and found.columns.width == 8
    rows = torch.cat([found.client(number).train.x for number in (1, 0, 2)])  # rows 0, 2; 1; 3
    assert rows[0].tolist() == [0.0, 1.0, 0.0, 0.0, -1.0, 1.0, 1.0, 0.0]
    assert rows[1, 1:].tolist() == [0.0, 0.0, 1.0, -1.0, 1.0, 0.0, 1.0]
    assert rows[2, 1:4].tolist() == [0.0, 0.0, 1.0], "none is other"


def test_what_public_rows_teach_is_named_and_clients_teach_nothing() -> None:
    public = frame(age=[0, 50, 20, 80], day=pd.to_datetime(["2020-01-01", "2021-01-01"] * 2))
    private = frame(sex=["f", "secret", "m", "f"], day=pd.to_datetime(["2030-01-01"] * 4))
    told = {"classes": None, "categories": None, "scale": {"age": (0, 100)}}
    found = people(private, public=public, **told)
    assert found.columns is not None and found.columns.categories == {"sex": ("f", "m", "*")}
    assert found.columns.classes == ("no", "yes") and found.columns.scale["age"] == (0.0, 100.0)
    assert "the records of frame/public are public: nothing hides them" in found.caution("client")
    assert found.client(0).train.x[0].tolist() == pytest.approx([-0.6, 0.0, 0.0, 1.0, 1.0])
    other = people(frame(age=[9, 9, 9, 9], day=private["day"]), public=public, **told)
    assert other.columns == found.columns


def test_several_targets_are_numbers_or_labels() -> None:
    table = pd.DataFrame(
        {"who": [1, 1, 2], "a": [1, 0, 1], "b": [True, False, True], "c": [0.5, 1.0, 2.0], "x": [1, 2, 3]}
    )
    labels = Population.from_dataframe(table, client="who", target=["a", "b"], features=["x"])
    assert labels.client(0).train.y.tolist() == [[1, 1], [0, 0]]
    numbers = Population.from_dataframe(table, client="who", target=["a", "c"], features=["x"])
    assert numbers.client(1).train.y.dtype == torch.float32
    with pytest.raises(BadValue, match="Leave classes out"):
        Population.from_dataframe(table, client="who", target=["a", "b"], classes=2)


CSV = "clinic,age,sex,ill\nb,10,f,no\na,20,m,yes\nb,30,m,no\nNA,40,f,yes\n"
COLUMNS = Columns(**{**DECLARED, "classes": ("no", "yes")})


@pytest.mark.parametrize(
    "text",
    [
        CSV,
        "\ufeff" + CSV,
        CSV.replace(",", ";"),
        CSV.replace(",", "\t"),
        CSV.replace(",", ";").replace("10;", "10,0;"),
        CSV.replace(",", ", "),
        CSV.replace("\n", "\r\n"),
    ],
    ids=["plain", "byte-order mark", "semicolons", "tabs", "decimal comma", "spaces", "windows"],
)
def test_a_csv_is_read_as_people_write_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "clinics.csv"
    path.write_text(text, encoding="utf-8", newline="")
    found = Population.from_table(path, COLUMNS)
    assert found.ids == ("NA", "a", "b") and found.name == "clinics", "NA is a name here"
    assert found.client(2).train.x[:, 0].tolist() == pytest.approx([-0.8, -0.4])


def test_parquet_and_csv_are_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    read_table(tmp_path / "a.csv", COLUMNS).to_parquet(tmp_path / "a.parquet")
    one, other = (Population.from_table(tmp_path / f"a.{end}", COLUMNS) for end in ("csv", "parquet"))
    assert (records_of(one), one.identity) == (records_of(other), other.identity)


def test_another_process_reads_the_file_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CSV)
    for clients in (None, 9, ["a", "b", "NA", "z"]):
        here = Population.from_table(path, COLUMNS, clients)
        there = pickle.loads(pickle.dumps(origin_of(here))).build()
        assert (there.size, there.identity, records_of(there)) == (here.size, here.identity, records_of(here))
        assert there.caution("client") == here.caution("client")
    with pytest.raises(BadValue, match="lies in the memory of this process"):
        origin_of(people(frame()))


def _wrong(write: Callable[[Path], object], words: str, path: Path) -> None:
    write(path)
    with pytest.raises(SfumatoError, match=words):
        Population.from_table(path, COLUMNS)


def test_files_that_are_no_tables_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with pytest.raises(DataError, match="there is no file"):
        Population.from_table(path, COLUMNS)
    _wrong(lambda file: file.write_text(""), "is empty", path)
    _wrong(lambda file: file.write_text(CSV.split("\n")[0]), "has no rows", path)
    _wrong(lambda file: file.write_text(CSV + "a,1,f,no,more\n"), "cannot be read as .csv", path)
    _wrong(lambda file: file.write_text("clinic,age\na,b,c,d\n"), "cannot be read as .csv", path)
    _wrong(lambda file: file.write_bytes(CSV.replace("a", "\xe4").encode("latin-1")), "is not UTF-8", path)
    _wrong(lambda file: file.write_text("no parquet"), "cannot be read as .parquet", tmp_path / "a.parquet")
    _wrong(lambda file: file.write_text("x"), "ends in .csv or .parquet", tmp_path / "a.xlsx")


def test_columns_survive_run_toml() -> None:
    found = people(frame()).columns
    assert found is not None and Columns.of_table(found.to_table()) == found
    with pytest.raises(BadValue, match="Did you mean 'target'?"):
        Columns.of_table({"taget": "ill"})


def test_a_budget_for_an_id_that_reads_like_a_number_is_for_nobody_in_that_place() -> None:
    found = people(frame(clinic=["7", "x", "y", "x"]), clients=9)
    assert found.ids == ("7", "x", "y")
    own = Budgets.of({"default": (4.0, 1e-5), 7: (1.0, 1e-5)}, found.size, found.ids).own
    assert [who for who, _ in own] == [(0,)]
