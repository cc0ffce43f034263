"""A table's rows as tensors, by its declared `Columns`. A value that these do not provide for is refused, and never shown."""

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
_BACK = "or leave the column out: features=[...] names those that are used"


def pandas() -> Any:
    """The library, loaded when somebody brings a table."""
    return import_module("pandas")


def _line(role: str, name: str, value: str) -> str:
    """What to declare, as Python has it and as a file of columns has it."""
    return f"{role}={{{name!r}: {value}}} (in TOML: {role}.{name} = {value.replace('(', '[').replace(')', ']')})"


def encode(frame: Frame, columns: Columns, what: str) -> Records:
    """All rows, in their order; `columns` must be those of this table (`Columns.of`)."""
    parts = [_input(frame[name], name, columns, what) for name in columns.features]
    x = torch.from_numpy(np.concatenate(parts, axis=1, dtype=np.float32))
    return Records(x, _target(frame, columns, what))


def text_codes(values: Any) -> tuple[np.ndarray, list[str]]:
    """For each row the place of its text among the different ones, -1 where there is none; and these texts."""
    pd = pandas()

    if pd.api.types.is_float_dtype(values) and (values.abs() >= _EXACT).any():
        raise DataError(
            f"the column {values.name!r}: whole numbers this large are not told apart once a missing value has made them floats. "
            "Give them as texts."
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
    """Whether a column holds texts, or objects of any kind: what pandas made of them says nothing about their meaning."""
    types = pandas().api.types

    return not (types.is_numeric_dtype(values) or types.is_bool_dtype(values) or is_date(values))


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
                f"{what}, column {name!r}: dates need a range to become numbers. Add {_line('scale', name, _DATES)}, with ends "
                f"that everybody may know, {_BACK}."
            )
        numbers = _numbers(values, name, columns, what)
        low, high = (0.0, 0.0) if ends is None else (float(ends[0]), float(ends[1]))
    filled = columns.fill.get(name)
    if filled is not None:
        numbers = np.where(np.isnan(numbers), _filling(filled, name, ends), numbers)
    if np.isnan(numbers).any() or (ends is None and np.isinf(numbers).any()):
        raise DataError(
            f"{what}, column {name!r}: values are missing, or no finite numbers. Say what stands for them, "
            f"{_line('fill', name, '...')}, with a value of your choice, or leave those rows or the column out."
        )
    if ends is not None:
        numbers = 2.0 * (np.clip(numbers, low, high) - low) / (high - low) - 1.0
    return numbers[:, None]


def _filling(value: Any, name: str, ends: Any) -> float:
    try:
        return _moment(value) if ends is not None and isinstance(ends[0], str) else float(value)
    except (TypeError, ValueError):
        raise BadValue(f"fill of {name!r}: {value!r} is no value of that column. Give a number, or a date.") from None


def _one_hot(values: Any, name: str, columns: Columns, what: str) -> np.ndarray:
    declared = columns.categories[name]
    place = {text: number for number, text in enumerate(declared) if text != OTHER}
    other = declared.index(OTHER) if OTHER in declared else -1
    codes, texts = text_codes(values)
    missing = place.get(as_text(columns.fill[name]), other) if name in columns.fill else other
    places = np.array([*(place.get(text, other) for text in texts), missing])[codes]
    if (places < 0).any():
        raise DataError(
            f"{what}, column {name!r}: a value is missing, or is none of the declared {list(declared)}. Declare all that may "
            f"occur; {OTHER!r} among them stands for any other and for none."
        )
    found: np.ndarray = (places[:, None] == np.arange(len(declared))).astype(np.float32)
    return found


def _numbers(values: Any, name: str, columns: Columns, what: str) -> np.ndarray:
    if is_text(values):
        raise DataError(
            f"{what}, column {name!r}: texts are no numbers. Declare all values that may occur, which are not learnt from clients' "
            f"rows: {_line('categories', name, '[...]')}. Dates need {_line('scale', name, _DATES)}; {_BACK}."
        )
    return _real(values)


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
        read = pd.to_datetime(values, errors="coerce", format="ISO8601", utc=True)
        if (read.isna() & ~values.isna()).any():
            raise DataError(
                f"{what}, column {name!r}: values are no dates such as 2024-05-31. Write them so (pandas.to_datetime reads "
                f"others), {_BACK}."
            )
        values = read
    if values.dt.tz is None:
        values = values.dt.tz_localize("UTC")
    found: np.ndarray = ((values - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)).to_numpy(dtype=np.float64)
    return found


def _moment(end: Any) -> float:
    """A date as days since 1970."""
    pd = pandas()

    moment = pd.Timestamp(str(end))
    moment = moment.tz_localize("UTC") if moment.tz is None else moment
    return float((moment - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1))


def _target(frame: Frame, columns: Columns, what: str) -> torch.Tensor:
    if isinstance(columns.classes, tuple) and columns.classes:
        return _labels(frame[columns.targets[0]], columns.targets[0], columns.classes, what)
    found = [_plain_target(frame[name], name, columns, what) for name in columns.targets]
    whole = all(part.dtype == np.int64 for part in found)
    y = torch.from_numpy(np.stack(found, axis=1).astype(np.int64 if whole else np.float32))
    if isinstance(columns.classes, int) and y.numel() and not 0 <= int(y.min()) <= int(y.max()) < columns.classes:
        raise DataError(
            f"{what}, target {columns.targets[0]!r}: a label is not among 0 to {columns.classes - 1}. Declare more classes, or "
            "the values that it may have: classes=[...]."
        )
    return y[:, 0] if isinstance(columns.target, str) else y


def _labels(values: Any, name: str, classes: Sequence[str], what: str) -> torch.Tensor:
    codes, texts = text_codes(values)
    place = {text: number for number, text in enumerate(classes)}
    labels = np.array([*(place.get(text, -1) for text in texts), -1])[codes]
    if (labels < 0).any():
        raise DataError(
            f"{what}, target {name!r}: a value is missing, or is none of the declared {list(classes)}. Declare all that may "
            "occur, in classes=[...], or leave those rows out."
        )
    return torch.from_numpy(labels.astype(np.int64))


def _plain_target(values: Any, name: str, columns: Columns, what: str) -> np.ndarray:
    """Whole numbers as int64, where they are labels; others as float64."""
    types = pandas().api.types

    if is_text(values) or is_date(values):
        raise DataError(
            f"{what}, target {name!r}: its values are no numbers. Declare them in the order of the model's outputs, classes=[...], "
            "with all that may occur: they are not learnt from clients' rows."
        )
    found = _real(values)
    if not np.isfinite(found).all():
        raise DataError(
            f"{what}, target {name!r}: values are missing, or no finite numbers. Leave those rows out: what a record's target "
            "is, nobody can fill in."
        )
    if columns.numbers:  # never by way of int64, which has no room for all of them
        return found
    whole = types.is_integer_dtype(values) or types.is_bool_dtype(values)
    if not whole and isinstance(columns.classes, int):
        if (found != np.round(found)).any():
            raise DataError(f"{what}, target {name!r}: a label is no whole number. Give the class of each row.")
        whole = True
    if whole and (np.abs(found) >= _EXACT).any():
        raise DataError(f"{what}, target {name!r}: a label is too large to be one. Number classes from 0.")
    return found.astype(np.int64) if whole else found
