"""From the words of `sfumato train` to a request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato.commands.options import KEYS, flag
from sfumato.commands.unused import refuse_unused
from sfumato.errors import BadValue, nearest
from sfumato.recipes import find
from sfumato.run.request import Request, parse_setting


def request_from(recipe: str | None, config: str | None, chosen: dict[str, Any], settings: list[str]) -> Request:
    """The config, else the defaults, with what the options and then --set change."""
    request = Request.from_toml(Path(config)) if config else Request()
    request.require_named("simulate(round, population, module, objective, ...).")
    if recipe:
        find(recipe)
        request = replace(request, recipe=recipe, pieces=None)
    if "data" in chosen and chosen["data"] != "digits" and not config:  # the defaults are those of digits
        request = request.with_value("data.records_per_client", 0).with_value("data.clients", 100)
        request = _with_its_own_clients(request, chosen["data"])
        if "clients" not in chosen and not any(words.startswith("data.clients=") for words in settings):
            _check_declared(chosen["data"])
    options = {} if request.pieces is not None else find(request.recipe).options
    changes: list[tuple[str, Any]] = []
    for name, value in chosen.items():
        if name not in KEYS and name not in options:
            if request.pieces is not None:
                raise BadValue(f"{flag(name)}: the config holds a whole round, which takes no option of a recipe.")
            raise BadValue(f"the recipe {request.recipe!r} has no option {flag(name)}. {nearest(name, options)}")
        changes.append((KEYS[name].path if name in KEYS else f"options.{name}", value))
    changes += [parse_setting(words) for words in settings]
    if ("epsilon", "none") in changes:  # first: a config's budget excludes --unproven
        request = replace(request, epsilon=None)
    for key, value in changes:
        request = request.with_value(key, value)
    keys = {key for key, _ in changes}
    refuse_unused(request, chosen, keys)
    return _with_a_budget(request, taken_away="epsilon" in keys)


def _with_a_budget(request: Request, taken_away: bool) -> Request:
    """Epsilon 2 where noise is needed and nothing says how much, unless the user took the budget away."""
    private = request.pieces is None and "noise_multiplier" in find(request.recipe).options
    if not private or request.epsilon is not None or "noise_multiplier" in request.options or request.unproven:
        return request
    if taken_away:
        raise BadValue(
            f"epsilon=none: without a budget {request.recipe} does not know how much noise to add. "
            "Give --noise-multiplier too, e.g. 1.0, or a budget with --epsilon."
        )
    return replace(request, epsilon=2.0)


def _with_its_own_clients(request: Request, data: str) -> Request:
    """Data that come with clients are split into these, unless told otherwise."""
    from sfumato.data.load import NATURAL

    if data not in NATURAL:
        return request
    return request.with_value("data.split", "natural").with_value("data.task", "next-character")


def _check_declared(data: str) -> None:
    """Whose data it is must say how many clients there are: to count them would tell something about each."""
    if ":" in data or Path(data).is_dir():
        raise BadValue(
            f"--data {data}: how many clients has it? Declare it with --clients: it is public, and not counted."
        )
