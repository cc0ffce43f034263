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
    from sfumato.data.population import PublicData
    from sfumato.round import Round


@dataclass(frozen=True)
class Recipe:
    """A recipe's name, which is that of its function; the file where it lives, its paper, and one line about it."""

    name: str
    home: str
    paper: str
    summary: str
    extends: str = ""  # the recipe whose options it takes besides its own
    rounds: int | None = None  # how many it takes, if nobody says
    central: bool = False  # one client holds all records, and a round is one step

    @property
    def function(self) -> Callable[..., Round]:
        found: Callable[..., Round] = getattr(import_module(f"{__name__}.{self.home}"), self.name.replace("-", "_"))
        return found

    @property
    def takes_public(self) -> bool:
        """Whether it has a use for public records."""
        return "public" in inspect.signature(self.function).parameters

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """Its keyword arguments, with their types resolved."""
        hints = get_type_hints(self.function, localns={"Round": Any, "PublicData": Any})
        found = inspect.signature(self.function).parameters.values()
        own = {p.name: p.replace(annotation=hints[p.name]) for p in found if p.kind is p.KEYWORD_ONLY}
        return {**RECIPES[self.extends].options, **own} if self.extends else own


_RECIPES = (
    Recipe("dp-fedavg", "dp_fedavg", "McMahan et al. 2018",
           "Federated averaging with clipped updates and Gaussian noise at the server"),
    Recipe("dp-fed-ls", "variants", "Liang et al. 2020",
           "DP-FedAvg with Laplacian smoothing of the noisy aggregate", extends="dp-fedavg"),
    Recipe("dp-fedsam", "variants", "Shi et al. 2023",
           "DP-FedAvg with sharpness-aware local steps", extends="dp-fedavg"),
    Recipe("dp-fedsam-top-k", "variants", "Shi et al. 2023",
           "DP-FedSAM with sparse updates: dense noise, a shared mask, or (unproven) as published", extends="dp-fedsam"),
    Recipe("fed-smp", "variants", "Hu et al. 2022",
           "DP-FedAvg on coordinates that all clients share", extends="dp-fedavg"),
    Recipe("dp-fedavg-blur", "variants", "Cheng et al. 2022",
           "DP-FedAvg with a penalty on long updates (BLUR), and sparse ones (LUS) below keep 1", extends="dp-fedavg"),
    Recipe("dp-fedavg-adaptive", "variants", "Andrew et al. 2021",
           "DP-FedAvg with a clip norm that follows a quantile, paid for by the same noise", extends="dp-fedavg"),
    Recipe("dp-fedavg-shares", "variants", "Geyer et al. 2017",
           "DP-FedAvg whose noise is the clients' own, in a (simulated) secure sum", extends="dp-fedavg"),
    Recipe("prifedsync", "prifedsync", "Zheng et al. 2021",
           "Private training of each record at the client, with personal models"),
    Recipe("perturb-model", "prifedsync", "Zheng et al. 2021",
           "Training without noise, then one clipped and noisy message per round: the other way to hide records"),
    Recipe("udp-fl", "udp_fl", "Feng et al. 2024",
           "Private training of each record at the client, under any law of noise"),
    Recipe("nbafl", "nbafl", "Wei et al. 2020",
           "Models in a ball, noised at the client by a formula that is not proven: the baseline of UDP-FL"),
    Recipe("dp-fedsgd", "udp_fl", "Zhu et al. 2020",
           "One private step on each client's records a round: what votes are compared with", extends="udp-fl"),
    Recipe("dp-sgd", "dp_sgd", "Abadi et al. 2016",
           "Central training: one trusted holder of all records, each hidden in every step", rounds=300, central=True),
    Recipe("pate-fl", "voting", "Zhu et al. 2020",
           "Clients' own models vote on public records; the server trains a student on the noisy counts", rounds=1),
    Recipe("knn-fl", "voting", "Zhu et al. 2020",
           "Clients vote with the labels of their nearest records: no training, and one record moves little", rounds=1),
    Recipe("fedavg", "fedavg", "McMahan et al. 2017",
           "Federated averaging without privacy: the baseline"),
)  # fmt: skip
RECIPES = {recipe.name: recipe for recipe in _RECIPES}


def find(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise BadValue(f"there is no recipe {name!r}. {nearest(name, RECIPES)}")
    return RECIPES[name]


def check_clients(name: str, clients: int) -> None:
    """Refuse many clients where one holder has all the records."""
    if find(name).central and clients != 1:
        raise BadValue(
            f"clients={clients}: in {name} one trusted holder has all the records, so it is 1. Leave --clients out; for many "
            "clients who train on their own records, use udp-fl or prifedsync."
        )


def build(name: str, population: int, options: dict[str, Any], public: PublicData | None = None) -> Round:
    """The Round of a recipe, for a declared population; `public` is what was set aside for a recipe that uses such data."""
    recipe = find(name)
    known = recipe.options
    check_clients(name, population)
    for option in options:
        if option not in known:
            raise BadValue(f"the recipe {name!r} has no option {option!r}. {nearest(option, known)}")
    if "stddev" in options and "noise_multiplier" in options:
        raise BadValue(
            f"stddev={options['stddev']} and noise_multiplier={options['noise_multiplier']} exclude each other: both say how much "
            "noise there is, in votes or as a multiple of the norm. Give one of them."
        )
    if "stddev" in known and options.get("noise_multiplier") == 0:
        raise BadValue("noise_multiplier=0: votes are never released without noise. Leave it out, or give e.g. 1.0.")
    if public is None:
        return recipe.function(population, **options)
    if not recipe.takes_public:
        raise BadValue(f"the recipe {name!r} has no use for {public.name!r}. Leave --public-records out.")
    return recipe.function(population, public, **options)
