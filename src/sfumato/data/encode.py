"""A table's rows as tensors, by its declared `Columns`. A value that these do not provide for is refused, and never shown.

A refusal names the table, the column and the rows, of which the first record is number 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch

from sfumato.data.columns import OTHER, Columns, as_text
from sfumato.data.records import Records
from sfumato.errors import BadValue, DataError

Frame = Any  # pandas is loaded by who brings a frame, or by who reads a file
_DATES = "('2020-01-01', '2026-01-01')"
_EXACT = 2**53  # below it every whole number is a float64 of its own
_TRUTH = {"True": "1", "TRUE": "1", "true": "1", "False": "0", "FALSE": "0", "false": "0"}
_BACK = "or leave the column out: features=[...] names those that are used"


def pandas() -> Any:
    """The library, loaded when somebody brings a table."""
    return import_module("pandas")


def _line(role: str, name: str, value: str) -> str:
    """What to declare, as Python has it and as a file of columns has it."""
    return f"{role}={{{name!r}: {value}}} (in TOML: {role}.{name} = {value.replace('(', '[').replace(')', ']')})"


def encode(frame: Frame, columns: Columns, what: str) -> Records:
    """All rows, in their order; `columns` must be those of this table (`Columns.of`). All that do not fit are named at once."""
    parts, problems, y = list[np.ndarray](), list[str](), None
    for name in columns.features:
        try:
            parts.append(_input(frame[name], name, columns, what))
        except DataError as error:
            problems.append(str(error))
    try:
        y = _target(frame, columns, what)
    except DataError as error:
        problems.append(str(error))
    if problems or y is None:
        raise DataError("\n".join(problems))
    return Records(torch.from_numpy(np.concatenate(parts, axis=1, dtype=np.float32)), y)


def encode_apart(frame: Frame, columns: Columns, what: str) -> Records:
    """All rows, in their order; one that does not fit has NaN as its inputs, and changes no other row.

    A row that fails makes the whole table fail, so halves are tried until it is alone.
    """
    texts = {name: frame[name] for name in (*columns.features, *columns.targets) if is_text(frame[name])}
    broken = np.zeros(len(frame), dtype=bool)
    numbers = {}
    for name, values in texts.items():
        if _is_plain(name, columns):
            cells = values.astype(str).replace(_TRUTH)
            numbers[name] = pandas().to_numeric(cells, errors="coerce")
            broken |= np.asarray(numbers[name].isna() & ~values.isna())
        else:
            broken |= np.asarray(values.astype(str).str.contains("[\r\n]"))
    parts = _halved(frame.assign(**numbers), np.arange(len(frame)), broken, columns, what)
    width = max((part.x.shape[1] for _, part in parts), default=0)
    x = torch.full((len(frame), width), torch.nan)
    y = torch.zeros((len(frame), *parts[0][1].y.shape[1:]) if parts else len(frame), dtype=torch.float64)
    for rows, part in parts:
        x[rows], y[rows] = part.x, part.y.double()
    whole = not any(part.y.is_floating_point() for _, part in parts)
    return Records(x, y.long() if whole else y.float())


def _is_plain(name: str, columns: Columns) -> bool:
    """Whether a column holds numbers by what is declared."""
    ends = columns.scale.get(name)
    if name in columns.targets:
        return not (isinstance(columns.classes, tuple) and columns.classes)
    return name not in columns.categories and not (ends is not None and isinstance(ends[0], str))


def _halved(
    frame: Frame, rows: np.ndarray, broken: np.ndarray, columns: Columns, what: str
) -> list[tuple[np.ndarray, Records]]:
    """The rows that can be encoded, in blocks, with their places."""
    rows = rows[~broken[rows]]
    if not len(rows):
        return []
    try:
        return [(rows, encode(frame.iloc[rows], columns, what))]
    except DataError:
        if len(rows) == 1:
            return []
        middle = len(rows) // 2
        return [part for half in (rows[:middle], rows[middle:]) for part in _halved(frame, half, broken, columns, what)]


def rows_of(bad: Any) -> str:
    """Which rows are meant, for errors; of many the first three.

    >>> rows_of(np.array([False, True])), rows_of(np.ones(5, dtype=bool))
    ('row 2', 'rows 1, 2, 3 and 2 more')
    """
    rows = (np.flatnonzero(np.asarray(bad)) + 1).tolist()
    if not rows:  # of each value alone nothing is wrong
        return "all rows"
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows[:3]))}{more}"


def _infinite(numbers: np.ndarray) -> np.ndarray:
    """Which are no finite numbers as records hold them."""
    with np.errstate(over="ignore"):
        return ~np.isfinite(numbers.astype(np.float32))


def text_codes(values: Any) -> tuple[np.ndarray, list[str]]:
    """For each row the place of its text among the different ones, -1 where there is none; and these texts."""
    pd = pandas()

    if pd.api.types.is_float_dtype(values) and (large := (values.abs() >= _EXACT).fillna(False)).any():
        raise DataError(
            f"the column {values.name!r}, {rows_of(large)}: whole numbers from 2^53 on are rounded once a missing value has made "
            "them floats. Give them as texts."
        )
    if pd.api.types.is_object_dtype(
        values
    ):  # 1, True and Decimal(1) are equal: whichever row came first would name them all
        values = values.map(as_text, na_action="ignore")
    codes, found = pd.factorize(values)
    texts = [as_text(value) for value in found.tolist()]
    known = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    places = np.array([*(known[text] for text in texts), -1])  # the last is what -1 finds
    return places[codes], list(known)


def is_text(values: Any) -> bool:
    """Whether a column holds texts, or anything else that is no real number and no date: what pandas made of objects says nothing
    about their meaning.
    """
    types = pandas().api.types

    numbers = types.is_numeric_dtype(values) and not types.is_complex_dtype(values)
    return not (numbers or types.is_bool_dtype(values) or is_date(values))


def is_date(values: Any) -> bool:
    """Whether a column holds dates."""
    types = pandas().api.types

    return bool(types.is_datetime64_any_dtype(values))


def _input(values: Any, name: str, columns: Columns, what: str) -> np.ndarray:
    if name in columns.categories:
        return _one_hot(values, name, columns, what)
    ends = columns.scale.get(name)
    if ends is not None and isinstance(ends[0], str):
        numbers = _dates(values, name, columns, what)
        low, high = (_moment(end) for end in ends)
    else:
        if is_date(values):
            raise DataError(
                f"{what}, column {name!r}: dates need a range to become numbers. Add {_line('scale', name, _DATES)}, with public "
                f"ends, {_BACK}."
            )
        numbers = _numbers(values, name, columns, what)
        low, high = (0.0, 0.0) if ends is None else (float(ends[0]), float(ends[1]))
    filled = columns.fill.get(name)
    if filled is not None:
        numbers = np.where(np.isnan(numbers), _filling(filled, name, ends), numbers)
    if (missing := np.isnan(numbers)).any():
        raise DataError(
            f"{what}, column {name!r}, {rows_of(missing)}: values are missing. Declare what replaces them, "
            f"{_line('fill', name, '...')}, with a value of your choice, or leave those rows or the column out."
        )
    if ends is None and (infinite := _infinite(numbers)).any():
        raise DataError(
            f"{what}, column {name!r}, {rows_of(infinite)}: values are no finite numbers in float32, which ends at 3.4e38. Add a "
            f"range, {_line('scale', name, '(0, 100)')}, to whose nearer end they are moved, or leave those rows or the column out."
        )
    if ends is not None:
        numbers = 2.0 * (np.clip(numbers, low, high) - low) / (high - low) - 1.0
    return numbers[:, None]


def _filling(value: Any, name: str, ends: Any) -> float:
    try:
        found = _moment(value) if ends is not None and isinstance(ends[0], str) else float(value)
    except (TypeError, ValueError):
        raise BadValue(f"fill of {name!r}: {value!r} is no value of that column. Give a number, or a date.") from None
    if not np.isfinite(found) or (ends is None and _infinite(np.array([found])).any()):
        raise BadValue(f"fill of {name!r}: {value!r} is not finite in float32. Give a number up to 3.4e38, or a date.")
    return found


def _one_hot(values: Any, name: str, columns: Columns, what: str) -> np.ndarray:
    declared = columns.categories[name]
    place = {text: number for number, text in enumerate(declared) if text != OTHER}
    other = declared.index(OTHER) if OTHER in declared else -1
    codes, texts = text_codes(values)
    missing = place.get(as_text(columns.fill[name]), other) if name in columns.fill else other
    places = np.array([*(place.get(text, other) for text in texts), missing])[codes]
    if (unknown := places < 0).any():
        raise DataError(
            f"{what}, column {name!r}, {rows_of(unknown)}: a value is missing, or is none of the declared {list(declared)}. "
            f"Declare all that may occur; {OTHER!r} among them stands for any other and for none."
        )
    found: np.ndarray = (places[:, None] == np.arange(len(declared))).astype(np.float32)
    return found


def _numbers(values: Any, name: str, columns: Columns, what: str) -> np.ndarray:
    if is_text(values):
        raise DataError(
            f"{what}, column {name!r}, {rows_of(_no_numbers(values))}: texts are no numbers. Declare all values that may occur, "
            f"which are not learnt from clients' rows: {_line('categories', name, '[...]')}. Dates need "
            f"{_line('scale', name, _DATES)}; {_BACK}."
        )
    return _real(values)


def _no_numbers(values: Any) -> Any:
    """Which values of a column of texts would be no numbers alone."""
    return pandas().to_numeric(values.astype(str), errors="coerce").isna() & ~values.isna()


def _real(values: Any) -> np.ndarray:
    """Numbers as float64, whatever type the column has: a whole column has no -0, so none has."""
    found: np.ndarray = values.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0
    return found


def _dates(values: Any, name: str, columns: Columns, what: str) -> np.ndarray:
    """Days since 1970, NaN where there is none."""
    pd = pandas()

    if not is_date(values):
        if not is_text(values):
            raise DataError(
                f"{what}, column {name!r}: numbers, though its scale has dates. Give numbers as the ends of its scale."
            )
        values = values.map(as_text, na_action="ignore")
        read = pd.to_datetime(values, errors="coerce", format="ISO8601", utc=True)
        if (wrong := read.isna() & ~values.isna()).any():
            raise DataError(
                f"{what}, column {name!r}, {rows_of(wrong)}: values are no dates such as 2024-05-31. Write them so "
                f"(pandas.to_datetime reads others), {_BACK}."
            )
        values = read
    try:
        return _days(values)
    except (pd.errors.OutOfBoundsDatetime, OverflowError):
        raise DataError(
            f"{what}, column {name!r}: a date is more than 290,000 years away. Leave its row out, {_BACK}."
        ) from None


def _days(moments: Any) -> np.ndarray:
    """Days since 1970, in steps of a microsecond: in nanoseconds the year 2262 would be the last."""
    pd = pandas()

    moments = moments.dt.tz_localize("UTC") if moments.dt.tz is None else moments
    since = moments.dt.as_unit("us") - pd.Timestamp(0, tz="UTC").as_unit("us")
    found: np.ndarray = (since / pd.Timedelta(days=1).as_unit("us")).to_numpy(dtype=np.float64)
    return found


def _moment(end: Any) -> float:
    """A date as days since 1970."""
    pd = pandas()

    return float(_days(pd.Series([pd.Timestamp(str(end))]))[0])


def _target(frame: Frame, columns: Columns, what: str) -> torch.Tensor:
    if isinstance(columns.classes, tuple) and columns.classes:
        return _labels(frame[columns.targets[0]], columns.targets[0], columns.classes, what)
    found = [_plain_target(frame[name], name, columns, what) for name in columns.targets]
    whole = all(part.dtype == np.int64 for part in found)
    y = torch.from_numpy(np.stack(found, axis=1).astype(np.int64 if whole else np.float32))
    if isinstance(columns.classes, int) and (wrong := (y < 0) | (y >= columns.classes)).any():
        raise DataError(
            f"{what}, target {columns.targets[0]!r}, {rows_of(wrong.any(1))}: a label is not among 0 to {columns.classes - 1}. "
            "Declare more classes, or the values that it may have: classes=[...]."
        )
    return y[:, 0] if isinstance(columns.target, str) else y


def _labels(values: Any, name: str, classes: Sequence[str], what: str) -> torch.Tensor:
    codes, texts = text_codes(values)
    place = {text: number for number, text in enumerate(classes)}
    labels = np.array([*(place.get(text, -1) for text in texts), -1])[codes]
    if (unknown := labels < 0).any():
        raise DataError(
            f"{what}, target {name!r}, {rows_of(unknown)}: a value is missing, or is none of the declared {list(classes)}. Declare "
            "all that may occur, in classes=[...], or leave those rows out."
        )
    return torch.from_numpy(labels.astype(np.int64))


def _plain_target(values: Any, name: str, columns: Columns, what: str) -> np.ndarray:
    """Whole numbers as int64, where they are labels; others as float64."""
    types = pandas().api.types

    if is_text(values) or is_date(values):
        where = "" if is_date(values) else f", {rows_of(_no_numbers(values))}"
        raise DataError(
            f"{what}, target {name!r}{where}: its values are no numbers. Declare them in the order of the model's outputs, "
            "classes=[...], with all that may occur: they are not learnt from clients' rows."
        )
    found = _real(values)
    if (infinite := _infinite(found)).any():
        raise DataError(
            f"{what}, target {name!r}, {rows_of(infinite)}: values are missing, or no finite numbers in float32, which ends at "
            "3.4e38. Leave those rows out: no value can be declared for a missing target."
        )
    if columns.numbers:  # never by way of int64, which has no room for all of them
        return found
    whole = types.is_integer_dtype(values) or types.is_bool_dtype(values)
    if not whole and isinstance(columns.classes, int):
        if (broken := found != np.round(found)).any():
            raise DataError(
                f"{what}, target {name!r}, {rows_of(broken)}: a label is no whole number. Give the class of each row."
            )
        whole = True
    if whole and (large := np.abs(found) >= _EXACT).any():
        raise DataError(
            f"{what}, target {name!r}, {rows_of(large)}: a label is too large to be one. Number classes from 0."
        )
    return found.astype(np.int64) if whole else found
