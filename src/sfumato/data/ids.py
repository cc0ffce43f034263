"""Who the clients of a table are: the values of one column, as texts, in an order that the rows do not decide."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np

from sfumato.data.columns import as_text
from sfumato.data.encode import rows_of, text_codes
from sfumato.errors import BadValue, DataError

Id = int | str
_NUMBER = re.compile(r"0|-?[1-9]\d{0,17}")


def found_ids(values: Any, name: str, what: str, declared: Iterable[object] | None) -> tuple[np.ndarray, list[Id]]:
    """For each row the number of its client, and the clients' ids: those that are declared, else those that are there.

    Sorted, so that the order of rows does not matter. Where all ids are whole numbers they are numbers, so that what names a
    client by such a number (a budget) never means its place.
    """
    codes, texts = text_codes(values)
    if (codes < 0).any() or "" in texts:
        nobody = (codes < 0) | (codes == (texts.index("") if "" in texts else -1))
        raise DataError(
            f"{what}, client column {name!r}, {rows_of(nobody)}: a row has no client, and no guarantee would cover it. Say "
            "whose it is, or leave it out."
        )
    wanted = texts if declared is None else _declared(declared)
    if unknown := set(texts) - set(wanted):
        rows = np.array([text in unknown for text in texts])[codes]
        raise DataError(
            f"{what}, client column {name!r}, {rows_of(rows)}: {'an id is' if len(unknown) == 1 else 'ids are'} not among the "
            "declared clients. Declare all clients that may be there, or leave their rows out."
        )
    _refuse_look_alikes(wanted if declared is None else [], name, what)
    numbered = all(map(_NUMBER.fullmatch, wanted))
    order = sorted(wanted, key=int) if numbered else sorted(wanted)
    place = {text: number for number, text in enumerate(order)}
    numbers = np.array([place[text] for text in texts], dtype=np.int64)[codes] if texts else codes.astype(np.int64)
    return numbers, [int(text) for text in order] if numbered else list(order)


def _declared(given: Iterable[object]) -> list[str]:
    listed = [as_text(one) for one in given]
    if not listed or "" in listed or len(set(listed)) < len(listed):
        raise BadValue("clients: an empty list, an empty id, or one id twice. Give each client's id once.")
    return listed


def _refuse_look_alikes(texts: list[str], name: str, what: str) -> None:
    """Refuse ids that may be one person's in two spellings: as two clients, each with half the records, it would be less hidden
    than a guarantee for one client says.
    """
    seen = {_plainest(text) for text in texts}
    if len(seen) < len(texts):
        raise DataError(
            f"{what}, client column {name!r}: ids differ only in capitals, spaces or leading zeros. If they are one client's, "
            "a guarantee for one client would hide a part of its records only: write them alike. If they are not, declare all "
            "ids, clients=[...]."
        )


def _plainest(text: str) -> str:
    """What spellings of one id have in common.

    >>> _plainest("North  Side") == _plainest("north side"), _plainest("007") == _plainest("7.0")
    (True, True)
    """
    plain = "".join(unicodedata.normalize("NFKC", text).casefold().split())
    number = re.fullmatch(r"0*(\d+)(\.0*)?", plain)
    return number.group(1) if number else plain
