"""A name in the wrong place: a data set where a recipe belongs, a recipe under --data. Say where it goes."""

from __future__ import annotations

import difflib
from pathlib import Path

from sfumato.errors import BadValue, nearest
from sfumato.recipes import RECIPES


def refuse_misplaced(recipe: str | None = None, data: str | None = None, model: str | None = None) -> None:
    """Refuse a recipe, a data set or a model that is no such thing but one of the others, with the words to type instead."""
    if recipe is not None and recipe not in RECIPES:
        raise BadValue(f"there is no recipe {recipe!r}. {_instead_of_a_recipe(recipe)}")
    if data is not None and not Path(data).exists():
        if data in RECIPES:
            raise BadValue(f"--data {data}: that is a recipe, which is named without an option: sfumato train {data}.")
        if _is_model(data):
            raise BadValue(f"--data {data}: that is a model. Give it as --model {data}.")
    if model is not None and model in RECIPES:
        raise BadValue(f"--model {model}: that is a recipe, which is named without an option: sfumato train {model}.")
    if model is not None and _is_data(model):
        raise BadValue(f"--model {model}: that is a data set. Give it as --data {model}.")


def _instead_of_a_recipe(word: str) -> str:
    if _is_data(word):
        return f"It is a data set: give it as --data {word}."
    if _is_model(word):
        return f"It is a model: give it as --model {word}."
    if ":" in word or "/" in word or Path(word).exists():
        return f"Your own data are given as --data {word}."
    if difflib.get_close_matches(word, RECIPES, n=1):
        return nearest(word, RECIPES)
    from sfumato.data.load import NAMES
    from sfumato.models.build import NAMES as MODELS

    others = {**{name: f"--model {name}" for name in MODELS}, **{name: f"--data {name}" for name in NAMES}}
    close = difflib.get_close_matches(word, others, n=1)
    return f"Did you mean '{others[close[0]]}'?" if close else nearest(word, RECIPES)


def _is_data(word: str) -> bool:
    from sfumato.data.load import NAMES

    return word in NAMES


def _is_model(word: str) -> bool:
    from sfumato.models.build import NAMES

    base, _, size = word.partition(":")
    return word in NAMES or (
        base in NAMES and bool(size) and not base.isidentifier()
    )  # else a module of the user's own
