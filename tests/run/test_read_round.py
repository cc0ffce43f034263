"""A Round from its text: exactly the one that was written, or none; and nothing in a text is ever executed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from sfumato import Clip, Poisson, PostProcess, Relation, Unit
from sfumato.claim import Claim, text
from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.protocol import ClientPiece
from sfumato.recipes import RECIPES, build
from sfumato.run.read_round import read_round, round_text
from tests.helpers import dp_round


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_comes_back(recipe: str) -> None:
    round = build(recipe, 1 if RECIPES[recipe].central else 1000, {})
    assert read_round(text(round)) == round and round_text(round) == text(round)


def test_relations_units_and_nested_pieces_come_back() -> None:
    round = dp_round(sample=Poisson(0.25, relation=Relation.ZERO_OUT), client=(Clip(1.5),), unit=Unit.CLIENT)
    assert read_round(text(round)) == round


@dataclass(frozen=True)
class Mine(ClientPiece):
    """A piece of one's own: the library cannot make it again."""

    def carry(self, claim: Claim) -> Claim:
        return claim

    def __call__(self, rows: Any, context: Any) -> Any:
        return rows


def test_what_is_not_the_librarys_own_has_no_text() -> None:
    assert round_text(dp_round(client=(Mine(), Clip(1.0)))) is None
    assert round_text(replace(dp_round(), server=(*dp_round().server, PostProcess(lambda value: value)))) is None


@pytest.mark.parametrize(
    "said",
    [
        "__import__('os').system('true')",
        "Round(sample=__import__('os'))",
        "simulate(round=1)",
        "Round(sample=Poisson.__class__)",
        "Round(**{'sample': 1})",
        "Round(sample=Poisson(0.5))",
        "Round(local=(lambda: 1)())",
        "Clip(norm=1.0)",
        "Round(",
        "(" * 500,
    ],
)
def test_nothing_else_is_read(said: str) -> None:
    with pytest.raises(BadValue):
        read_round(said)


def test_a_round_that_is_unsound_is_refused_as_ever() -> None:
    with pytest.raises(UnsoundRound, match="adds noise"):
        read_round(
            "Round(sample=Poisson(rate=0.5), local=Sgd(lr=1.0, steps=1), client=(Clip(norm=1.0),), aggregate=Mean(over=5))"
        )
