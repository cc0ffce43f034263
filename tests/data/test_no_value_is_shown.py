"""No message shows a client's value: tables and files with a marker in every kind of column and every kind of fault.

A refusal is one of ours (never pandas' own words), names the place, and holds nothing of the marker. What is accepted is looked for
in the public files of a run.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow.parquet import write_table

from sfumato import Columns, Objective, Population, PublicData, simulate
from sfumato.data.tables import population_of, read_table
from sfumato.errors import SfumatoError
from sfumato.private_log import NAME, log_folder
from sfumato.voting.neighbours import Neighbours
from tests.cli.conftest import Command, sfumato  # noqa: F401  # the fixture
from tests.helpers import dp_round

DIGITS = "87318731"  # in every marker
MARKERS: dict[str, Any] = {
    "text": f"x{DIGITS}y",
    "spaces": f"  {DIGITS} {DIGITS}  ",
    "whole": int(DIGITS),
    "negative": -int(DIGITS),
    "fraction": float(f"{DIGITS}.5"),
    "too large for float32": float(f"{DIGITS}e290"),
    "too large for float64": f"{DIGITS}e1000",
    "too large for int64": int(DIGITS * 3),
    "a date": "8731-08-31",
    "no date": f"{DIGITS}-01-01",
    "line break": f"a\n{DIGITS}",
    "quote": f'"{DIGITS}',
    "formula": f"={DIGITS}+1",
}
OBJECTS: dict[str, Any] = {
    "list": [int(DIGITS)],
    "dict": {DIGITS: 1},
    "bytes": DIGITS.encode(),
    "decimal": Decimal(DIGITS),
    "complex": complex(int(DIGITS), 1.0),
    "moment": datetime(8731, 8, 31),
    "far moment": np.datetime64(10**18, "s"),
    "duration": timedelta(days=873187),
    "array": np.array([int(DIGITS)]),
}
BEGIN = DIGITS[:6]  # as far as float32 has it
MARKS = (BEGIN, "8731-08-31", "8731, 8, 31", "1000000000000000000")
ROWS: dict[str, list[Any]] = {
    "who": ["a", "a", "b", "b"],
    "plain": [1, 2, 3, 4],
    "ranged": [10, 20, 30, 40],
    "day": ["2020-01-01", "2021-01-01", "2022-01-01", "2023-01-01"],
    "kind": ["f", "m", "f", "m"],
    "filled": [1.0, None, 3.0, 4.0],
    "ill": ["no", "yes", "no", "yes"],
    "stage": [0, 1, 2, 0],
    "score": [0.5, 1.5, 2.5, 3.5],
    "unused": ["q", "r", "s", "t"],
}
INPUTS = ("plain", "ranged", "day", "kind", "filled")
TARGETS: dict[str, dict[str, Any]] = {
    "ill": {"target": "ill", "classes": ["no", "yes"]},
    "stage": {"target": "stage", "classes": 3},
    "score": {"target": "score", "numbers": True},
    "many": {"target": ["stage", "score"]},
}
DECLARED: dict[str, Any] = {
    "client": "who",
    "features": INPUTS,
    "categories": {"kind": ["f", "m"]},
    "scale": {"ranged": (0, 100), "day": ("2020-01-01", "2026-01-01")},
    "fill": {"filled": 0.0},
}


def columns(target: str = "ill") -> Columns:
    return Columns(**DECLARED, **TARGETS[target])


def frame(column: str, marker: Any, row: int = 2) -> pd.DataFrame:
    """The rows with a marker in one of a column, which is of the kind that pandas gives such values."""
    values = list(ROWS[column])
    values[row] = marker
    plain = all(isinstance(one, int | float | np.datetime64 | complex) or one is None for one in values)
    series = pd.Series(values) if plain else pd.Series(values, dtype=object)
    return pd.DataFrame({**ROWS, column: series})


def from_frame(table: pd.DataFrame, declared: Columns, clients: Any = None) -> Population:
    return population_of(table, declared, clients, "frame")


def hidden(call: Callable[[], object]) -> str:
    """What the call is refused with, if it is: by us, in words without the marker."""
    said = ""
    try:
        call()
    except SfumatoError as error:
        said = str(error)
    for mark in MARKS:
        assert mark not in said, f"{mark} is shown: {said}"
    return said


@pytest.mark.parametrize("kind", [*MARKERS, *OBJECTS])
@pytest.mark.parametrize("column", ROWS)
def test_a_frame(column: str, kind: str) -> None:
    marker = {**MARKERS, **OBJECTS}[kind]
    for target in TARGETS:
        said = hidden(lambda target=target: from_frame(frame(column, marker), columns(target)))
        if said and column != "who":
            assert f"'{column}'" in said
        if said and column == "plain" and kind in ("text", "too large for float32"):
            assert "row 3" in said
    hidden(lambda: from_frame(frame(column, marker), columns(), clients=["a", "b"]))
    hidden(lambda: PublicData.from_dataframe(frame(column, marker), columns()))
    hidden(lambda: from_frame(frame(column, marker), Columns(target="ill", client="who")))  # nothing is declared


@pytest.mark.parametrize("kind", MARKERS)
@pytest.mark.parametrize("column", ROWS)
def test_a_csv_and_a_parquet(tmp_path: Path, column: str, kind: str) -> None:
    table = frame(column, MARKERS[kind])
    for separator in (",", ";"):
        path = tmp_path / "a.csv"
        table.to_csv(path, index=False, sep=separator)
        for target in TARGETS:
            hidden(lambda path=path, target=target: Population.from_table(path, columns(target)))
    arrow = pa.table(
        {name: pa.array(map(str, table[name]) if table[name].dtype == object else table[name]) for name in table}
    )
    write_table(arrow, tmp_path / "a.parquet")
    hidden(lambda: Population.from_table(tmp_path / "a.parquet", columns()))


HEADER = ",".join(ROWS)
LINES = [",".join("" if value is None else str(value) for value in row) for row in zip(*ROWS.values(), strict=True)]
FILES: dict[str, bytes] = {
    "one value more": f"{HEADER}\n{LINES[0]}\n{LINES[1]},{DIGITS}\n{LINES[2]}\n".encode(),
    "one value more everywhere": f"{HEADER}\n{LINES[0]},{DIGITS}\n{LINES[1]},{DIGITS}\n".encode(),
    "values missing": f"{HEADER}\n{LINES[0]}\n{DIGITS}\n".encode(),
    "a quote that is not closed": f'{HEADER}\n{LINES[0]}\n"{DIGITS},{LINES[1]}\n{LINES[2]}\n'.encode(),
    "bytes that are no text": f"{HEADER}\n{LINES[0]}\n{DIGITS}".encode() + b"\xff\xfe,\n",
    "a zero byte": f"{HEADER}\n{LINES[0]}\n{DIGITS}\x00{LINES[1]}\n".encode(),
    "no first line": f"{DIGITS},{LINES[1]}\n{LINES[0]}\n".encode(),
    "no first line, twice": f"{DIGITS},{DIGITS},{LINES[1]}\n{LINES[0]}\n".encode(),
    "another separator": f"{HEADER}\n{LINES[0].replace(',', '~')}{DIGITS}\n".encode(),
    "a first line in quotes": f'"{HEADER}\n{DIGITS}\n'.encode(),
    "a very long value": f"{HEADER}\n{LINES[0]}\n{DIGITS * 40_000}\n".encode(),
    "not a table": f"PK\x03\x04{DIGITS}\x00\x01".encode(),
    "only carriage returns": f"{HEADER}\r{DIGITS},{LINES[1]}\r".encode(),
}


@pytest.mark.parametrize("fault", FILES)
def test_a_broken_csv(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(FILES[fault])
    said = hidden(lambda: Population.from_table(path, columns()))
    assert said or fault == "a zero byte", "refused"
    if fault in ("one value more", "bytes that are no text", "a quote that is not closed"):
        assert "line 3" in said
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + FILES[fault])
    assert hidden(lambda: read_table(path, columns()))


def files() -> Iterator[tuple[str, dict[str, Any] | bytes]]:
    x, y = np.ones((3, 2), np.float32), np.zeros(3, np.int64)
    yield "a label", {"x": x, "y": np.array([0, int(DIGITS), 1])}
    yield "a fraction as label", {"x": x, "y": np.array([0, float(f"{DIGITS}.5"), 1])}
    yield "texts as inputs", {"x": np.array([[DIGITS]] * 3), "y": y}
    yield "texts as labels", {"x": x, "y": np.array([DIGITS] * 3)}
    yield "dates", {"x": np.array(["8731-08-31"] * 3, "datetime64[D]"), "y": y}
    yield "complex", {"x": np.full((3, 2), complex(int(DIGITS))), "y": y}
    yield "one number", {"x": np.array(int(DIGITS)), "y": y}
    yield "damaged", DIGITS.encode() * 9


@pytest.mark.parametrize(("fault", "content"), list(files()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_folder_of_files(tmp_path: Path, sfumato: Command, fault: str, content: Any) -> None:  # noqa: F811
    people = tmp_path / "people"
    people.mkdir()
    buffer = io.BytesIO()
    np.savez(buffer, **(content if isinstance(content, dict) else {"x": np.ones(3)}))
    for number in range(9):
        good = io.BytesIO()
        np.savez(good, x=np.ones((3, 2), np.float32), y=np.zeros(3, np.int64))
        (people / f"{number}.npz").write_bytes(good.getvalue())
    (people / "5.npz").write_bytes(content if isinstance(content, bytes) else buffer.getvalue())
    hidden(lambda: Population.from_folder(people).client(5))
    status, out, err = sfumato(
        "train", "--data", "people", "--clients", "9", "--outputs", "2", "--rounds", "2", "--sample", "everyone"
    )
    assert status == 2 and "5" in err and BEGIN not in out + err


CODE = f"""
import torch
from sfumato import Population

def raises():
    raise ValueError("{DIGITS} is no number")

def raises_for_one(client):
    if client == 3:
        return torch.ones(2, 3), torch.tensor([0, float("x{DIGITS}")])
    return torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)

def holds():
    x = torch.ones(40, 2, 3)
    x[3, 1, 2] = {DIGITS}
    return [(one, torch.zeros(2, dtype=torch.int64)) for one in x]

def features(x):
    if x.max() > 9:
        raise KeyError(x.tolist())
    return x.flatten(1)

def a_record(client):
    return [{DIGITS}]

def labels():
    return [(torch.ones(2, 3), torch.tensor([0, {DIGITS}]))] * 40

class Net(torch.nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.last = torch.nn.Linear(shape[0], outputs)
    def forward(self, x):
        if x.max() > 9:
            raise IndexError(f"{{x.tolist()}}")
        return self.last(x)

def net(input_shape, outputs):
    return Net(input_shape, outputs)
"""
OWN = "--clients 40 --outputs 2 --rounds 2 --sample everyone --noise-multiplier 1"
WRONG = {
    f"train --data secretive:raises {OWN}": "ValueError",
    f"train --data secretive:raises_for_one {OWN}": "client 3",
    f"train --data secretive:a_record {OWN}": "client 0",
    f"train --data secretive:labels {OWN}": "record 1",
    f"train --data secretive:holds {OWN} --features secretive:features": "client 3 of",
    f"train --data secretive:holds {OWN} --model secretive:net": "client 3: local training failed: IndexError",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_users_own_code(sfumato: Command, words: str) -> None:  # noqa: F811
    Path("secretive.py").write_text(CODE)
    sys.modules.pop("secretive", None)
    log = log_folder() / NAME
    log.unlink(missing_ok=True)
    for more in ([], ["--json"]):
        status, out, err = sfumato(*words.split(), "--out", f"run{len(more)}", *more)
        assert status == 2 and WRONG[words] in (json.loads(out)["refused"] if more else err)
        assert BEGIN not in out + err
        if "label" not in words and "a_record" not in words:
            assert str(log) in (json.loads(out)["refused"] if more else err) and BEGIN in log.read_text()
    for file in Path.cwd().rglob("run?/*"):
        assert BEGIN.encode() not in file.read_bytes()


def test_what_is_not_foreseen_is_its_type(sfumato: Command, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def broken(*given: object, **named: object) -> None:
        raise ValueError(f"could not convert {DIGITS}")

    monkeypatch.setattr("sfumato.data.tables.encode", broken)
    Path("a.csv").write_text(f"{HEADER}\n{LINES[0]}\n")
    status, out, err = sfumato(
        "train", "--data", "a.csv", "--client-column", "who", "--target-column", "ill", "--outputs", "2"
    )
    log = log_folder() / NAME
    assert status == 1 and "did not foresee: ValueError" in err and str(log) in err and "Traceback" not in err
    assert BEGIN not in out + err and BEGIN in log.read_text()


def test_a_date_far_away_trains(sfumato: Command) -> None:  # noqa: F811
    """9999-12-31 is how many write "never", and was printed by the line for errors that were not foreseen."""
    Path("a.csv").write_text("who,day,ill\n" + "a,2020-01-01,no\nb,9999-12-31,yes\nc,2021-01-01,no\n" * 20)
    Path("c.toml").write_text(
        'client="who"\ntarget="ill"\nclasses=["no","yes"]\n[scale]\nday=["2020-01-01","2026-01-01"]\n'
    )
    words = "train --data a.csv --columns c.toml --clients 3 --rounds 1 --sample everyone --noise-multiplier 1 --quiet"
    assert sfumato(*words.split(), "--out", "run") == (0, "", "")


def test_values_that_train_are_in_no_public_file(sfumato: Command) -> None:  # noqa: F811
    rows = {name: list(values) * 10 for name, values in ROWS.items()}
    rows["who"][7], rows["ranged"][7], rows["day"][7] = f"id {DIGITS}", int(DIGITS), "8731-08-31"
    rows["unused"][7], rows["plain"][7] = f"x{DIGITS}", int(DIGITS)
    pd.DataFrame(rows).to_csv("a.csv", index=False)
    Path("c.toml").write_text(
        'client="who"\ntarget="ill"\nfeatures=["plain","ranged","day","kind","filled"]\nclasses=["no","yes"]\n'
        '[categories]\nkind=["f","m"]\n[fill]\nfilled=0\n[scale]\nranged=[0,100]\nday=["2020-01-01","2026-01-01"]\n'
    )
    words = (
        "train --data a.csv --columns c.toml --clients 5 --rounds 2 --sample everyone --noise-multiplier 1 --lr 0.001"
    )
    status, out, err = sfumato(*words.split(), "--out", "run")
    assert status == 0 and not any(mark in out + err for mark in MARKS[:3])
    for name in ("run.toml", "run.json", "metrics.jsonl", "report.html"):
        text = Path("run", name).read_text()
        assert not any(mark in text for mark in MARKS[:3]), name


def test_a_loss_that_quotes_what_it_gets() -> None:
    def loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if y.numel() and float(y.max()) > 9:
            raise ValueError(f"{y.tolist()}")
        return (outputs.squeeze(-1) - y).square()

    people = Population.from_list([(torch.ones(2, 3), torch.tensor([0.0, float(DIGITS)]))] * 9)
    run = simulate(dp_round(), people, torch.nn.Linear(3, 1), Objective(loss), rounds=1)
    assert "local training failed" in hidden(lambda: list(run))


def test_votes_of_neighbours_and_ids() -> None:
    records = Population.from_list([(torch.ones(2, 3), torch.tensor([0, int(DIGITS)]))]).client(0).train
    assert "record 1" in hidden(lambda: Neighbours(1).answers(records, torch.ones(1, 3), 2, "client 0"))
    assert hidden(lambda: Population.from_list([(torch.ones(2, 3), torch.zeros(2))], ids=[float(DIGITS)]))
    for items in (
        [(DIGITS, 0)],
        [([1.0], DIGITS)],
        [([1.0, 2.0], 0), ([int(DIGITS)], 0)],
        [{"x": DIGITS, "y": DIGITS}],
        [DIGITS],
    ):
        assert hidden(lambda items=items: Population.from_datasets([items]))
