"""Tables as clients: a pandas frame, or a .csv or .parquet file, one record per row."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfumato.data.columns import Columns
from sfumato.data.encode import Frame, encode, encode_apart, is_text, pandas
from sfumato.data.ids import found_ids
from sfumato.data.learn_columns import learn
from sfumato.data.population import Population, PublicData
from sfumato.data.records import Client, Records
from sfumato.errors import BadValue, DataError, SfumatoError, refused_by_system

ENDINGS = (".csv", ".parquet")
Declared = int | Iterable[object] | None
_MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A")
_SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class Rows:
    """Records that lie one client after another; the last begins where the next to last ends."""

    records: Records
    starts: np.ndarray

    def __call__(self, number: int) -> Client:
        begin, end = self.starts[number : number + 2]
        return Client(Records(*(part[begin:end] for part in self.records)))


@dataclass(frozen=True)
class Table:
    """A file of rows, and what is declared of them: all that another process needs to read it."""

    path: str
    columns: Columns
    clients: int | tuple[int | str, ...] | None = None

    def to_table(self) -> dict[str, Any]:
        """What stands in run.toml under [data.columns]."""
        return {
            **self.columns.to_table(),
            **({"clients": list(self.clients)} if isinstance(self.clients, tuple) else {}),
        }

    def build(self) -> Population:
        """Read it here."""
        return population_of(read_table(self.path, self.columns), self.columns, self.clients, Path(self.path).stem)


def is_table(name: str) -> bool:
    """Whether a name is that of a file of rows.

    >>> is_table("people.csv"), is_table("people/"), is_table("mnist")
    (True, False, False)
    """
    return Path(name).suffix.lower() in ENDINGS


def population_of(
    frame: Frame, columns: Columns, clients: Declared, name: str, public: Frame | None = None, public_name: str = ""
) -> Population:
    """The clients of a frame; see `Population.from_dataframe`."""
    frame, what = _checked(frame, name), f"the table {name!r}"
    if public is not None:
        columns = learn(columns, _checked(public, public_name), public_name)
    columns = columns.of(frame.columns, what)
    records = encode(frame, columns, what)
    rows, ids = np.zeros(len(frame), np.int64), list[int | str]()
    if isinstance(clients, str):
        raise BadValue(f"clients={clients!r} is one text. Give the ids of all who may be there, or how many they are.")
    named = None if clients is None or isinstance(clients, int) else list(clients)
    if columns.client:
        rows, ids = found_ids(frame[columns.client], columns.client, what, named)
    elif named is not None:
        raise BadValue(
            "clients: their ids are in no column. Say in which: client='hospital', --client-column hospital."
        )
    if not columns.client and clients is None:
        clients = 1  # nobody is counted: all rows are one holder's
    size = len(ids) if columns.client else 1
    order = np.argsort(rows, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=size))])
    sorted_rows = Records(*(part[torch.from_numpy(order)] for part in records))
    shape = Records(*(torch.zeros((2, *part.shape[1:]), dtype=part.dtype) for part in records))
    found = Population(name, size, Rows(sorted_rows, starts), is_fixed=True, at_hand=size).with_ids(ids or None)
    known: dict[str, Any] = {"assumes": columns.assumptions, "example": shape, "columns": columns}
    found = replace(found, **known, counted=clients is None, found_ids=bool(columns.client) and named is None)
    return found.declared(clients) if isinstance(clients, int) else found


def read_apart(path: str | Path, columns: Columns) -> Records:
    """The rows of a file as records, each read apart: one that the columns do not provide for has NaN in place of its inputs.

    What the file itself must be, such as a table with these columns, is refused as ever. The cells of a .csv are read one by one,
    since pandas gives a column a type by all of its cells.
    """
    frame, what = read_table(path, columns, apart=True).rename(columns=column_name), f"the table {Path(path).stem!r}"
    return encode_apart(frame, replace(columns, client="").of(frame.columns, what), what)


def public_of(frame: Frame, columns: Columns, name: str) -> PublicData:
    """The rows of a public frame as records, encoded as the clients' are; see `PublicData.from_dataframe`."""
    if not isinstance(columns, Columns):
        raise BadValue(f"PublicData {name!r}: columns is a {type(columns).__name__}. Give columns=population.columns.")
    if not columns.features:
        raise BadValue(
            f"PublicData {name!r}: columns name no features, whose order must be that of the clients' table. Give those of the "
            "population, columns=population.columns, or name them."
        )
    frame, what = _checked(frame, name), f"the table {name!r}"
    return PublicData(name, encode(frame, replace(columns, client="").of(frame.columns, what), what))


def read_table(path: str | Path, columns: Columns, apart: bool = False) -> Frame:
    """The rows of a file. In a .csv, ids, classes and categories are texts as they are written, so "NA" is a value there.

    With `apart`, all cells of a .csv are texts, with points in decimal numbers, so that none decides how another one is read.
    """
    file = Path(path)
    if not is_table(str(file)):
        raise BadValue(f"{file}: a table is a file that ends in {' or '.join(ENDINGS)}.")
    try:
        return _read_csv(file, columns, apart) if file.suffix.lower() == ".csv" else _read_parquet(file, columns)
    except SfumatoError:
        raise
    except FileNotFoundError:
        raise DataError(f"there is no file {file}. Give the path of a {file.suffix} file.") from None
    except ImportError:
        raise DataError(
            f"{file} is read by pyarrow, which is not installed. Install it with pip install 'sfumato[parquet]', or give a "
            ".csv file."
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{file}{_undecoded(file)}: it is not UTF-8 text. Save it as CSV in UTF-8.") from None
    except OSError as error:
        if error.filename is None:  # the reader's own
            raise DataError(f"{file} cannot be read as {file.suffix}. Write it again.") from error
        raise refused_by_system(error) from error
    except (
        ValueError,
        csv.Error,
        Warning,
    ) as error:  # pandas' and pyarrow's own are such; what they say may hold a row
        raise DataError(
            f"{file}{_line_of(error)}: it cannot be read as {file.suffix} ({type(error).__name__}). Its first line names the "
            "columns, and every other has as many values as it has."
        ) from None


def _line_of(error: Exception) -> str:
    """The line that a reader stumbled over, where it says so: nothing else of its words is shown."""
    if found := re.search(r"Expected \d+ fields in line (\d+)", str(error)):
        return f", line {found.group(1)}"
    found = re.search(r"EOF inside string starting at row (\d+)", str(error))
    return "" if found is None else f", line {int(found.group(1)) + 1}, a quote that is not closed"


def _undecoded(file: Path) -> str:
    """The first line that is not UTF-8."""
    try:
        file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return f", line {bytes(error.object[: error.start]).count(10) + 1}"
    return ""


def _read_parquet(file: Path, columns: Columns) -> Frame:
    schema = import_module("pyarrow.parquet").read_schema(file)
    columns.check_names([column_name(one) for one in schema.names], str(file))
    return pandas().read_parquet(file)


def _read_csv(file: Path, columns: Columns, apart: bool) -> Frame:
    pd = pandas()

    with file.open(encoding="utf-8-sig", newline="") as text:
        first = text.readline()
        if not first.strip():
            raise DataError(f"{file} is empty. Its first line names the columns, and every other is a record.")
        separator = max(_SEPARATORS, key=first.count)
        text.seek(0)
        raw = next(csv.reader(text, delimiter=separator, skipinitialspace=True))
    # As they are written: pandas would make y and y.1 of two columns y.
    header = [column_name(name) or f"Unnamed: {place}" for place, name in enumerate(raw)]
    columns.check_names(header, str(file))
    how: dict[str, Any] = {"sep": separator, "encoding": "utf-8-sig", "skipinitialspace": True, "index_col": False}
    how |= {"header": 0, "names": header}
    labels = columns.targets if isinstance(columns.classes, tuple) and columns.classes else ()
    words = {columns.client, *columns.categories, *labels}
    names = {name: name in words for name in header}
    how |= {
        "dtype": {name: str for name, word in names.items() if word or apart},
        "keep_default_na": False,
        "low_memory": False,
    }
    how |= {"na_values": {name: [""] if word else list(_MISSING) for name, word in names.items()}}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows that are longer than the first line
        frame = pd.read_csv(file, **how)
        texts = [name for name in names if is_text(frame[name])]
        if apart:
            commas = [name for name in texts if separator == ";" and not names[name]]
            frame[commas] = frame[commas].replace(r"^([+-]?\d*),(\d+)$", r"\1.\2", regex=True)
            return frame
        if broken := [name for name in texts if frame[name].astype(str).str.contains("[\r\n]").any()]:
            raise DataError(
                f"{file}, column {broken[0]!r}: a value has a line break. If a quote is not closed, it holds the rows of "
                "others, who would be missing. Write each value on one line, or give a .parquet file."
            )
        if separator == ";" and (commas := [name for name in texts if not names[name]]):
            frame[commas] = pd.read_csv(file, **how, decimal=",")[commas]
    return frame


def column_name(column: object) -> str:
    """A column's name, without spaces that nobody sees."""
    return re.sub(r"\s+", " ", str(column)).strip()


def _checked(frame: Frame, name: str) -> Frame:
    pd = pandas()

    if not isinstance(frame, pd.DataFrame):
        raise BadValue(f"{name!r} is a {type(frame).__name__}. Give a pandas DataFrame with one record per row.")
    renamed = frame.rename(columns=column_name)
    if not len(renamed):
        raise DataError(f"the table {name!r} has no rows. Give one record per row.")
    return renamed
