"""`sfumato explain`: a recipe's pieces, what is provable after each, and what it costs, with any of its options."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.commands.answers import refusing, show
from sfumato.commands.asked import refuse_unknown, request_from, seconds_from
from sfumato.commands.options import flag, option, recipe_options
from sfumato.commands.preparing import preparing
from sfumato.commands.suggest import refuse_misplaced
from sfumato.errors import BadValue
from sfumato.guarantee import default_delta, rounded_up
from sfumato.recipes import build, find

if TYPE_CHECKING:
    from sfumato.budget.budgets import Budgets
    from sfumato.planning.auto import Choice
    from sfumato.round import Round

_CLIENTS, _ROUNDS, _DIMENSION = 1000, 100, 1000
_OF_DATA = ("data", "data_dir", "records_per_client", "outputs", "public", "seconds")


@dataclass(frozen=True)
class Explained:
    """A recipe with everything that was left open: its round, and for whom, how often and at which delta it is priced."""

    recipe: str
    round: Round
    options: dict[str, Any]
    clients: int
    rounds: int
    delta: float
    dimension: int
    budgets: Budgets | None = None
    opening: str = ""  # what --auto looked at
    choices: tuple[Choice, ...] = ()


def _explain(recipe: str, given: dict[str, Any], json: bool) -> None:
    chosen = {name: value for name, value in given.items() if value is not None}
    refuse_misplaced(recipe)
    with preparing(json):
        from sfumato.commands.explained import answer, lines

        asked = _auto(recipe, chosen) if chosen.pop("auto", False) else _plain(recipe, chosen)
        found = answer(asked)
    show(found, lines(asked, found), json)


def _plain(recipe: str, chosen: dict[str, Any]) -> Explained:
    """The recipe with the options that are given, and its own defaults; noise for --epsilon, or for budgets."""
    from sfumato.budget.budgets import Budgets

    if unused := [name for name in _OF_DATA if name in chosen]:
        raise BadValue(f"explain {flag(unused[0])}: that is for --auto. Give --auto too, or leave it out.")
    about = find(recipe)
    clients = chosen.pop("clients", 1 if about.central else _CLIENTS)
    rounds, delta = chosen.pop("rounds", about.rounds or _ROUNDS), chosen.pop("delta", None)
    if rounds < 1:
        raise BadValue(f"--rounds {rounds}: at least 1.")
    dimension, secure, epsilon = _common(chosen)
    file = chosen.pop("budgets", None)
    refuse_unknown(recipe, chosen)
    budgets = None if file is None else Budgets.of(file, clients)
    round = _exact(build(recipe, clients, chosen), secure)
    delta = default_delta(round.units(clients)) if delta is None else delta
    if epsilon is not None and budgets is not None:
        raise BadValue(f"--epsilon {epsilon:g} and --budgets {file} exclude each other: give one of them.")
    if epsilon is not None:
        round, chosen = _calibrated(round, chosen, epsilon, delta, rounds, clients, dimension)
    if budgets is not None:
        from sfumato.budget.plan import planned

        round = planned(round, budgets, rounds, clients, dimension, chosen.get("noise_multiplier"))
    return Explained(recipe, round, chosen, clients, rounds, delta, dimension, budgets)


def _auto(recipe: str, chosen: dict[str, Any]) -> Explained:
    """What `train --auto` would choose for the data, by public facts, and the round that this makes."""
    from sfumato.run.auto import Auto
    from sfumato.run.clients import settled

    if "budgets" in chosen:
        raise BadValue(f"--budgets {chosen['budgets']}: --auto plans for one --epsilon. Leave one of them out.")
    dimension, secure, epsilon = _common(chosen)
    epsilon, seconds = 2.0 if epsilon is None else epsilon, seconds_from(chosen)
    request, keys = request_from(recipe, None, {"data": "digits", **chosen, "epsilon": epsilon}, [])
    request, source, choices = settled(request, Auto(keys, seconds))
    clients, rounds, delta = request.data.clients, request.rounds, request.chosen_delta
    holders = "one holder" if request.central else f"{clients} clients"
    opening = (
        f"auto: {request.data.name}, {holders}, records of shape {source.shape}, {source.outputs} classes, epsilon {epsilon:g}, "
        f"delta {rounded_up(delta, 3)}, {seconds:g} s. No record was looked at."
    )
    round = _exact(build(recipe, clients, request.options), secure)
    options = request.options
    if not request.noise_is_given:
        round, options = _calibrated(round, options, epsilon, delta, rounds, clients, dimension)
    return Explained(recipe, round, options, clients, rounds, delta, dimension, None, opening, choices)


def _common(chosen: dict[str, Any]) -> tuple[int, bool, float | None]:
    dimension = chosen.pop("dimension", _DIMENSION)
    if dimension < 1:
        raise BadValue(f"--dimension {dimension}: how many parameters are trained, at least 1.")
    return dimension, bool(chosen.pop("secure", False)), chosen.pop("epsilon", None)


def _exact(round: Round, secure: bool) -> Round:
    from sfumato.exact_round import secure as exactly

    return exactly(round) if secure else round


def _calibrated(
    round: Round, options: dict[str, Any], epsilon: float, delta: float, rounds: int, clients: int, dimension: int
) -> tuple[Round, dict[str, Any]]:
    """The round with the noise that `train --epsilon` would find, and the options that say so."""
    from sfumato.calibration import calibrate, noise_and_clip

    if round.nonprivate or round.unproven:
        raise BadValue(f"--epsilon {epsilon:g}: nothing is proven of this round, so no noise meets it. Leave it out.")
    if given := [name for name in ("noise_multiplier", "stddev") if name in options]:
        raise BadValue(f"--epsilon {epsilon:g} and {flag(given[0])} exclude each other: one finds the other. Give one.")
    round = calibrate(round, epsilon=epsilon, delta=delta, rounds=rounds, population=clients, dimension=dimension)
    return round, {**options, "noise_multiplier": noise_and_clip(round)[0]}


def _signature() -> inspect.Signature:
    text = "A recipe's name; see sfumato recipes."
    named = Annotated[str, typer.Argument(help=text, metavar="RECIPE", show_default=False)]
    panel, auto = "What to price", "With --auto"
    own = [
        option("clients", int, "The declared population: 1000, and 1 where one holder has all records.", panel),
        option("rounds", int, "After how many rounds to say what was spent: the recipe's own number, or 100.", panel),
        option(
            "delta",
            float,
            "Default: 1e-5, or 1/(10 n) if that is less, for n clients or protected records.",
            panel,
        ),
        option("epsilon", float, "Find the noise for this budget; with --auto 2, if it is not given.", panel),
        option("budgets", str, "A file with each client's own budget.", panel, "FILE"),
        option(
            "dimension", int, "How many parameters are trained, where the cost depends on it. Default: 1000.", panel
        ),
        option("secure", bool, "With exact noise, as train --secure has it.", panel),
        option("json", bool, "For programs.", panel),
        option("auto", bool, "What train --auto would choose for --data, and why.", auto),
        option("data", str, "The data, as train names them. Default: digits.", auto, "NAME"),
        option("data_dir", str, "Where data lie.", auto, "FOLDER"),
        option("records_per_client", int, "Records each client gets, as train has it.", auto),
        option("outputs", int, "Of your own data: the classes.", auto),
        option("public", str, "A data set to learn a basis from.", auto, "NAME"),
        option("seconds", float, "About how long to train. Default: 10.", auto),
    ]
    first = inspect.Parameter("recipe", inspect.Parameter.KEYWORD_ONLY, annotation=named)
    return inspect.Signature([first, *own, *recipe_options()])


def explain(**given: Any) -> None:
    """Show a recipe: its pieces in order, what is provable after each, what it costs, and its options.

    It takes the recipe's options too: the numbers are those that train and account give for the same noise. Without --epsilon,
    --budgets or noise it shows the recipe's own noise, where train finds some for epsilon 2.
    """
    json = bool(given.pop("json", False))
    with refusing(json):
        _explain(given.pop("recipe"), given, json)


explain.__signature__ = _signature()  # type: ignore[attr-defined]
explain.__annotations__ = {one.name: one.annotation for one in _signature().parameters.values()}
