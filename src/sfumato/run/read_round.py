"""A Round back from its text, so that a run from Python can be gone on with elsewhere. Nothing in the text is executed."""

from __future__ import annotations

import ast
import dataclasses
import math
from typing import Any

import sfumato
from sfumato.account import event
from sfumato.account.event import Relation, Unit
from sfumato.account.papers import claimed
from sfumato.claim import text
from sfumato.data.population import PublicData
from sfumato.errors import BadValue, SfumatoError
from sfumato.round import Round

_NAMED = {"Relation": Relation, "Unit": Unit}


def round_text(round: Round, public: PublicData | None = None) -> str | None:
    """The text from which `read_round` gives this very Round; None if there is none, as for a piece of one's own."""
    said = text(round)
    try:
        return said if read_round(said, public) == round else None
    except (SfumatoError, TypeError, RuntimeError):  # tensors are not compared
        return None


def read_round(said: str, public: PublicData | None = None) -> Round:
    """The Round that a text describes: the library's own pieces with plain values, and `public` records where it names them.

    >>> read_round("Round(sample=Everyone(), local=Sgd(lr=1.0, steps=1), aggregate=Mean(over=9), nonprivate=True)").sample
    Everyone(relation=<Relation.ADD_REMOVE: 'add_remove'>)
    """
    try:
        found = _value(ast.parse(said, mode="eval").body, public)
    except SfumatoError:
        raise
    except (SyntaxError, ValueError, TypeError, RecursionError) as error:
        raise BadValue(f"pieces={said!r} cannot be read: {error}. Write it as run.toml had it.") from None
    if not isinstance(found, Round):
        raise BadValue(f"pieces={said!r} is no Round. Write it as run.toml had it.")
    return found


def _value(node: ast.expr, public: PublicData | None) -> Any:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[], keywords=words):
            values = {word.arg: _value(word.value, public) for word in words if word.arg}
            named = name == "PublicData" and public is not None and values == {"name": public.name}
            return public if named else _piece(name)(**values)
        case ast.Tuple(elts=parts):
            return tuple(_value(part, public) for part in parts)
        case ast.Attribute(value=ast.Name(id="Relation" | "Unit" as name), attr=member):
            return _NAMED[name][member]
        case ast.Name(id="inf"):
            return math.inf
    return ast.literal_eval(node)


def _piece(name: str) -> Any:
    home: Any = (
        sfumato if name in sfumato.__all__ else event if hasattr(event, name) else claimed
    )  # what a paper claims
    found = getattr(home, name, None)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ValueError(f"there is no piece {name}")
    return found
