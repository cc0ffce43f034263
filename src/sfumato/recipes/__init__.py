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
    extends: str = ""  # the recipe whose options it takes besides its own

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
        own = {p.name: p.replace(annotation=hints[p.name]) for p in found if p.kind is p.KEYWORD_ONLY}
        return {**RECIPES[self.extends].options, **own} if self.extends else own


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
            "dp-fed-ls",
            "sfumato.recipes.dp_fed_ls:dp_fed_ls",
            "DP-FedAvg with Laplacian smoothing of the noisy aggregate",
            "Liang et al. 2020",
            extends="dp-fedavg",
        ),
        Recipe(
            "dp-fedsam",
            "sfumato.recipes.dp_fedsam:dp_fedsam",
            "DP-FedAvg with sharpness-aware local steps",
            "Shi et al. 2023",
            extends="dp-fedavg",
        ),
        Recipe(
            "dp-fedsam-top-k",
            "sfumato.recipes.dp_fedsam:dp_fedsam_top_k",
            "DP-FedSAM with sparse updates: dense noise, a shared mask, or (unproven) as published",
            "Shi et al. 2023",
            extends="dp-fedsam",
        ),
        Recipe(
            "fed-smp",
            "sfumato.recipes.fed_smp:fed_smp",
            "DP-FedAvg on coordinates that all clients share",
            "Hu et al. 2022",
            extends="dp-fedavg",
        ),
        Recipe(
            "dp-fedavg-blur",
            "sfumato.recipes.blur:dp_fedavg_blur",
            "DP-FedAvg with a penalty on long updates (BLUR), and sparse ones (LUS) below keep 1",
            "Cheng et al. 2022",
            extends="dp-fedavg",
        ),
        Recipe(
            "dp-fedavg-adaptive",
            "sfumato.recipes.adaptive:dp_fedavg_adaptive",
            "DP-FedAvg with a clip norm that follows a quantile, paid for by the same noise",
            "Andrew et al. 2021",
            extends="dp-fedavg",
        ),
        Recipe(
            "dp-fedavg-shares",
            "sfumato.recipes.shares:dp_fedavg_shares",
            "DP-FedAvg whose noise is the clients' own, in a (simulated) secure sum",
            "Geyer et al. 2017",
            extends="dp-fedavg",
        ),
        Recipe(
            "prifedsync",
            "sfumato.recipes.prifedsync:prifedsync",
            "Private training of each record at the client, with personal models",
            "Zheng et al. 2021",
        ),
        Recipe(
            "perturb-model",
            "sfumato.recipes.prifedsync:perturb_model",
            "Training without noise, then one clipped and noisy message per round: the other way to hide records",
            "Zheng et al. 2021",
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


def default(name: str, option: str) -> Any:
    """The default of an option; None where the recipe has no such option."""
    known = find(name).options
    return known[option].default if option in known else None
