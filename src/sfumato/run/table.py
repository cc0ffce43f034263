"""The table that a data request names, and what is declared of its columns."""

from __future__ import annotations

import filecmp
from dataclasses import dataclass, replace
from pathlib import Path

from sfumato.data.columns import Columns
from sfumato.data.load import NAMES
from sfumato.data.population import Population, PublicData
from sfumato.data.tables import column_name, is_table, population_of, public_of, read_table
from sfumato.errors import BadValue, DataError
from sfumato.run.request import DataRequest


@dataclass(frozen=True)
class FoundTable:
    """What a request's table gives: its clients, the public tables beside it, and how many outputs a model needs."""

    population: Population
    outputs: int
    test: PublicData | None
    public: PublicData | None


def table_of(data: DataRequest, joined: bool) -> FoundTable:
    """A table's clients, or with `joined` its one holder, and the public tables, written as the clients' rows are."""
    if not Path(data.name).exists():  # first: nobody declares the columns of a file whose name is wrong
        raise DataError(f"there is no file {data.name}. Give the path of a {Path(data.name).suffix} file.")
    asked = dict(data.columns)
    ids = asked.pop("clients", None)
    if ids is not None and (not isinstance(ids, list) or data.clients not in (0, len(ids))):
        raise BadValue(
            f"data.columns.clients={ids!r} with clients={data.clients}: it is the list of all ids that may be there, and their "
            "number is theirs. Leave --clients out."
        )
    columns = _for_task(Columns.of_table(asked), data)
    if not (columns.client or joined):
        raise BadValue(
            f"--data {data.name}: whose record is a row? Say which column names the client, --client-column NAME. With dp-sgd "
            "one holder has all rows."
        )
    frame, name = read_table(data.name, columns), Path(data.name).stem
    for option, other in (("--public", data.public), ("--test-data", data.test)):
        if other is not None and Path(other).is_file() and filecmp.cmp(data.name, other, shallow=False):
            raise BadValue(
                f"{option} {other} holds the rows of --data {data.name}: what is learnt or measured there is shown as it is, and "
                "nothing hides it. Give rows that are public and no client's."
            )
    public = None if data.public is None else read_table(data.public, columns)
    if joined:  # whose a row is does not matter, and the column is no input
        columns = replace(columns.of([column_name(one) for one in frame.columns], f"the table {name!r}"), client="")
    declared = ids or (None if data.counted or joined else data.clients) or None
    population = population_of(frame, columns, declared, name, public, data.public or "")
    assert population.columns is not None, "a table has columns"
    columns = population.columns
    if not columns.outputs:
        raise BadValue(
            f"--data {data.name}: how many classes has {columns.targets[0]!r}? Declare them: classes in --columns FILE.toml, "
            "or --outputs where rows hold 0, 1, 2 and so on. They are not learnt from clients' rows. Numbers are --task "
            "regression."
        )
    test = None
    if data.test is not None and data.test not in NAMES:
        if not is_table(data.test):
            raise BadValue(f"--test-data {data.test}: give a table with the same columns, .csv or .parquet.")
        test = public_of(read_table(data.test, columns), columns, data.test)
    shared = None if public is None or data.public is None else public_of(public, columns, data.public)
    return FoundTable(population=population, outputs=columns.outputs, test=test, public=shared)


def _for_task(columns: Columns, data: DataRequest) -> Columns:
    """The columns with what the task and the declared outputs say of the target."""
    if data.task not in ("classification", "multi-label", "regression"):
        raise BadValue(f"task={data.task!r}: a table's task is classification, multi-label or regression.")
    if data.task != "classification":
        if columns.classes:
            raise BadValue(f"task={data.task!r}: classes are those of a classification. Leave classes or --task out.")
        target = columns.targets if data.task == "multi-label" else columns.target
        return replace(columns, target=target, numbers=True)
    if not isinstance(columns.target, str):
        raise BadValue(
            f"the targets {', '.join(columns.targets)} are no classes of one kind. Give --task multi-label (each holds or not) or "
            "--task regression (numbers)."
        )
    if columns.classes and data.outputs not in (0, columns.outputs):
        raise BadValue(f"outputs={data.outputs}, but {columns.outputs} classes are declared. Leave --outputs out.")
    return columns if columns.classes else replace(columns, classes=data.outputs)
