"""`sfumato recipes`: what there is."""

from __future__ import annotations

from sfumato.commands.answers import Json, show
from sfumato.recipes import RECIPES


def recipes(json: Json = False) -> None:
    """List the recipes."""
    answer = {recipe.name: {"summary": recipe.summary, "paper": recipe.paper} for recipe in RECIPES.values()}
    width = max(map(len, RECIPES))
    show(answer, [f"{name:<{width}}  {about['summary']} ({about['paper']})" for name, about in answer.items()], json)
