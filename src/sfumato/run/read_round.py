"""A Round back from its text, so that a run from Python can be gone on with elsewhere. Nothing in the text is executed."""

from __future__ import annotations

import ast
import dataclasses
import math
from typing import Any

import sfumato
from sfumato.account import event
from sfumato.account.event import Relation, Unit
from sfumato.claim import text
from sfumato.errors import BadValue, SfumatoError
from sfumato.round import Round

_NAMED = {"Relation": Relation, "Unit": Unit}


def round_text(round: Round) -> str | None:
    """The text from which `read_round` gives this very Round; None if there is none, as for a piece of one's own."""
    said = text(round)
    try:
        return said if read_round(said) == round else None
    except (SfumatoError, TypeError, RuntimeError):  # tensors are not compared
        return None


def read_round(said: str) -> Round:
    """The Round that a text describes: the library's own pieces with plain values, and nothing else.

    >>> read_round("Round(sample=Everyone(), local=Sgd(lr=1.0, steps=1), aggregate=Mean(over=9), nonprivate=True)").sample
    Everyone(relation=<Relation.ADD_REMOVE: 'add_remove'>)
    """
    try:
        found = _value(ast.parse(said, mode="eval").body)
    except SfumatoError:
        raise
    except (SyntaxError, ValueError, TypeError, RecursionError) as error:
        raise BadValue(f"pieces={said!r} cannot be read: {error}. Write it as run.toml had it.") from None
    if not isinstance(found, Round):
        raise BadValue(f"pieces={said!r} is no Round. Write it as run.toml had it.")
    return found


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[], keywords=words):
            return _piece(name)(**{word.arg: _value(word.value) for word in words if word.arg})
        case ast.Tuple(elts=parts):
            return tuple(map(_value, parts))
        case ast.Attribute(value=ast.Name(id="Relation" | "Unit" as name), attr=member):
            return _NAMED[name][member]
        case ast.Name(id="inf"):
            return math.inf
    return ast.literal_eval(node)


def _piece(name: str) -> Any:
    found = getattr(sfumato if name in sfumato.__all__ else event, name, None)  # or what a paper claims
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ValueError(f"there is no piece {name}")
    return found
