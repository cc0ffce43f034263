"""Pieces that stand around another one: what they do not write themselves is the other's, whatever the protocols ask for."""

from __future__ import annotations

from abc import update_abstractmethods
from dataclasses import replace
from typing import Any, TypeVar

from sfumato.pieces.protocol import DERIVED, hooks

_Piece = TypeVar("_Piece")


def forward_hooks(kind: type[_Piece]) -> type[_Piece]:
    """Let every hook of the class's protocols be that of its field `inner`, but for those that the class writes itself.

    A protocol's defaults would else be stated in place of what the other piece states: clients that it names would not be told
    apart, what it prepares would be missing. A hook that is made of others goes by those that the class writes (`step` makes
    `learn`). With other noise the piece stands around the other one with other noise.
    """
    own = set(vars(kind))
    for name, declared in hooks(kind).items():
        if name not in own and DERIVED.get(name) not in own:
            setattr(kind, name, _method(name) if callable(declared) else _fact(name))
    update_abstractmethods(kind)
    return kind


def _method(name: str) -> Any:
    if name == "with_noise":
        return lambda self, noise_multiplier: replace(self, inner=self.inner.with_noise(noise_multiplier))
    return lambda self, *args, **kwargs: getattr(self.inner, name)(*args, **kwargs)


def _fact(name: str) -> property:
    def fact(self: Any) -> Any:
        return getattr(self.inner, name)

    return property(fact)
