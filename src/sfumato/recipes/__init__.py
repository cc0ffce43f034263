"""Algorithms as short compositions of pieces. A recipe is a function with typed keyword arguments; each is an option.

`RECIPES` lists them by name without loading torch; a recipe imports its pieces when it is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

from sfumato.errors import BadValue, nearest

if TYPE_CHECKING:
    from sfumato.round import Round


@dataclass(frozen=True)
class Recipe:
    """A recipe's name, where it lives, and one line about it."""

    name: str
    home: str
    summary: str
    paper: str

    @property
    def function(self) -> Callable[..., Round]:
        """The function itself."""
        module, name = self.home.split(":")
        function: Callable[..., Round] = getattr(import_module(module), name)
        return function

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """Its keyword arguments, with their types resolved."""
        hints = get_type_hints(self.function, localns={"Round": Any})
        found = inspect.signature(self.function).parameters.values()
        return {p.name: p.replace(annotation=hints[p.name]) for p in found if p.kind is p.KEYWORD_ONLY}


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "dp-fedavg",
            "sfumato.recipes.dp_fedavg:dp_fedavg",
            "Federated averaging with clipped updates and Gaussian noise at the server",
            "McMahan et al. 2018",
        ),
        Recipe(
            "fedavg",
            "sfumato.recipes.fedavg:fedavg",
            "Federated averaging without privacy: the baseline",
            "McMahan et al. 2017",
        ),
    )
}


def find(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise BadValue(f"there is no recipe {name!r}. {nearest(name, RECIPES)}")
    return RECIPES[name]


def build(name: str, population: int, options: dict[str, Any]) -> Round:
    """The Round of a recipe, for a declared population."""
    recipe = find(name)
    known = recipe.options
    for option in options:
        if option not in known:
            raise BadValue(f"the recipe {name!r} has no option {option!r}. {nearest(option, known)}")
    return recipe.function(population, **options)
