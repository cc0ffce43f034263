"""The run-time type checker of the tests: a whole number will do where a float is wanted.

Every test checks the first calls of every function. A loop over thousands of draws would spend most of its time on the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from beartype import BeartypeConf, beartype

_CALLS = 60  # of a function in a test
_beartyped = beartype(conf=BeartypeConf(is_pep484_tower=True))
_counts: dict[Callable[..., Any], int] = {}
_left_alone: list[Any] = []


def typechecked(stand_in: Callable[..., Any]) -> Callable[..., Any]:
    """The check of a function's arguments and result: jaxtyping calls it with both in place of the function."""
    checked = _beartyped(stand_in)

    @wraps(stand_in)
    def counted(*args: Any, **kwargs: Any) -> Any:
        _counts[stand_in] = calls = _counts.get(stand_in, 0) + 1
        if calls > _CALLS and (function := sys._getframe(1).f_locals.get("fn")) is not None:
            function.__no_type_check__ = True  # jaxtyping asks for it at every call
            _left_alone.append(function)
        return checked(*args, **kwargs)

    return counted


def begin() -> None:
    """A new test: everything is checked again."""
    while _left_alone:
        _left_alone.pop().__no_type_check__ = False
    _counts.clear()
