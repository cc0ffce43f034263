"""What nobody declared of a table's columns, learnt from rows that are public; guarantees then say that they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sfumato.data.columns import OTHER, Columns
from sfumato.data.encode import Frame, is_date, is_text, text_codes
from sfumato.errors import DataError


def learn(columns: Columns, public: Frame, name: str) -> Columns:
    """The declared columns, and for all others the texts that public rows have and the range of their numbers.

    A text that only clients have is no category of its own: it falls into "*", which stands for any other.
    """
    columns = columns.of(public.columns, name)
    categories, scale = dict(columns.categories), dict(columns.scale)
    for column in columns.features:
        if column in categories or column in scale:
            continue
        values = public[column].dropna()
        if values.empty:
            raise DataError(
                f"{name}, column {column!r}: no row has a value, so nothing is learnt. Declare it yourself."
            )
        if is_text(values):
            categories[column] = (*sorted(text_codes(values)[1]), OTHER)
        elif (ends := _range(values)) is not None:
            scale[column] = ends
    classes: Any = columns.classes
    if not classes and not columns.numbers and len(columns.targets) == 1 and is_text(public[columns.targets[0]]):
        classes = tuple(sorted(text_codes(public[columns.targets[0]].dropna())[1]))
    return replace(columns, categories=categories, scale=scale, classes=classes, learnt_from=name)


def _range(values: Any) -> tuple[Any, Any] | None:
    """The least and the largest; nothing where they are one."""
    low, high = values.min(), values.max()
    if not low < high:
        return None
    return (low.isoformat(), high.isoformat()) if is_date(values) else (float(low), float(high))
