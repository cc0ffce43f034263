"""From the words of `sfumato train` to a request."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.budget.budgets import read
from sfumato.commands.options import COLUMNS, KEYS, flag
from sfumato.commands.suggest import refuse_misplaced
from sfumato.errors import BadValue, nearest
from sfumato.recipes import find
from sfumato.run.request import DataRequest, Request
from sfumato.run.settings_text import parse_setting

if TYPE_CHECKING:
    from sfumato.engine.workers import Factory

_EVALUATIONS = 50  # of a run whose rounds are single steps, unless told otherwise


def request_from(
    recipe: str | None, config: str | None, chosen: dict[str, Any], settings: list[str]
) -> tuple[Request, frozenset[str]]:
    """The config, else the defaults, with what the options and then --set change; and the keys that these have set."""
    refuse_misplaced(recipe or None, chosen.get("data"), chosen.get("model"))
    request = Request.from_toml(Path(config)) if config else Request.of_recipe(recipe, _data_named(chosen, settings))
    request.require_named("simulate(round, population, module, objective, ...).")
    if recipe:
        request = replace(request, recipe=recipe, pieces=None)
    request = _with_columns(request, chosen)
    if budgets := chosen.pop("budgets", None):
        request = replace(request, epsilon=None, budgets=read(budgets))
    options = {} if request.pieces is not None else find(request.recipe).options
    changes: list[tuple[str, Any]] = []
    for name, value in chosen.items():
        if name not in KEYS and name not in options:
            if request.pieces is not None:
                raise BadValue(f"{flag(name)}: the config holds a whole round, which takes no option of a recipe.")
            refuse_unknown(request.recipe, [name])
        changes.append((KEYS[name].path if name in KEYS else f"options.{name}", value))
    changes += [parse_setting(words) for words in settings]
    if ("epsilon", "none") in changes:  # first: a config's budget excludes --unproven
        request = replace(request, epsilon=None)
    for key, value in changes:
        request = request.with_value(key, value)
    keys = {key for key, _ in changes}
    _refuse_unused(request, chosen, keys)
    if request.central and not config and "evaluate_every" not in keys:
        request = replace(request, evaluate_every=max(1, request.rounds // _EVALUATIONS))
    return _with_a_budget(request, taken_away="epsilon" in keys), frozenset(keys)


def refuse_unknown(recipe: str, names: Iterable[str]) -> None:
    """Refuse options that a recipe does not have, and name the nearest that it has."""
    known = find(recipe).options
    for name in names:
        if name not in known:
            raise BadValue(f"the recipe {recipe!r} has no option {flag(name)}. {nearest(name, known)}")


def auto_from(chosen: dict[str, Any], config: str | None) -> float | None:
    """What --auto and --seconds say: how many seconds to train for, or nothing."""
    if not chosen.pop("auto", False):
        if "seconds" in chosen:
            raise BadValue(f"--seconds {chosen['seconds']:g}: only --auto plans for a time. Give both or none.")
        return None
    if config:
        raise BadValue(f"--config {config} holds settings already, which --auto would choose. Leave one out.")
    return seconds_from(chosen)


def seconds_from(chosen: dict[str, Any]) -> float:
    """What --seconds says, or 10."""
    seconds = float(chosen.pop("seconds", 10.0))
    if not 0.0 < seconds < math.inf:
        raise BadValue(f"--seconds {seconds:g}: how long to train, a number above 0, e.g. 10.")
    return seconds


def cohort_from(chosen: dict[str, Any]) -> Factory | None:
    """Who computes the clients: the cluster that --ray names, or nobody but this process."""
    address = chosen.pop("ray", None)
    numbers = {name: chosen.pop(name) for name in ("workers", "shards") if name in chosen}
    if address is None:
        if numbers:
            name, number = next(iter(numbers.items()))
            raise BadValue(f"{flag(name)} {number}: only a cluster has some. Give --ray local too, or leave it out.")
        return None
    from sfumato.engine.on_ray import ray_workers

    return ray_workers(address, **numbers)


def _with_a_budget(request: Request, taken_away: bool) -> Request:
    """Epsilon 2 where noise is needed and nothing says how much, unless the user took the budget away."""
    private = request.pieces is None and "noise_multiplier" in find(request.recipe).options
    told = request.epsilon is not None or request.budgets or request.noise_is_given
    if not private or told or request.unproven:
        return request
    if taken_away:
        raise BadValue(
            f"epsilon=none: without a budget {request.recipe} does not know how much noise to add. "
            "Give --noise-multiplier too, e.g. 1.0, or a budget with --epsilon."
        )
    return replace(request, epsilon=2.0)


def _data_named(chosen: dict[str, Any], settings: list[str]) -> str:
    """The data that are asked for: what is left open suits these."""
    found = [value for key, value in map(parse_setting, settings) if key == "data.name"]
    return str([chosen.get("data", "digits"), *found][-1])


def _with_columns(request: Request, chosen: dict[str, Any]) -> Request:
    """What the options say of a table's columns; they come before the file that --columns names."""
    given = {name: chosen.pop(name) for name in COLUMNS if name in chosen}
    columns = dict(request.data.columns)
    if path := given.get("columns"):
        from sfumato.data.columns import read_columns

        columns |= read_columns(path)
    if client := given.get("client_column"):
        columns["client"] = client
    if target := given.get("target_column"):
        several = [name.strip() for name in target.split(",")]
        columns["target"] = several if len(several) > 1 else target
    return replace(request, data=replace(request.data, columns=columns)) if given else request


def _refuse_unused(request: Request, typed: Collection[str], keys: Collection[str]) -> None:
    """Refuse what would have no effect, as nobody should believe that it was applied.

    That is among the options `typed`, or the `keys` of run.toml that they or --set set. A config holds defaults too, so what
    stands there is refused only where it is no default.
    """
    if "options.epochs" in keys and "options.steps" in keys and request.options["steps"]:
        raise BadValue(
            f"--epochs {request.options['epochs']} and --steps {request.options['steps']} exclude each other: a client trains "
            "for so many epochs or for so many steps. Give one of them."
        )
    if "options.stddev_of" in keys and "stddev" not in request.options:
        raise BadValue(
            f"--stddev-of {request.options['stddev_of']}: no --stddev is given, so there is nothing to count. Give both or none."
        )
    moves = request.options.get("optimizer", "momentum")
    if request.central and "options.momentum" in keys and moves != "momentum":
        raise BadValue(
            f"--momentum {request.options['momentum']}: --optimizer {moves} has none. Leave it out, or take --optimizer momentum, "
            "which is SGD with momentum."
        )
    from sfumato.data.load import NAMES
    from sfumato.data.tables import is_table
    from sfumato.run.source import is_own_data

    data = request.data
    own = is_own_data(data.name)
    if data.columns and not is_table(data.name):
        raise BadValue(
            f"--data {data.name} has no columns: only a table has (.csv, .parquet). Leave --client-column, --target-column and "
            "--columns out."
        )
    looked_into = data.public or data.features or data.test in NAMES  # features are kept there
    if (own or data.name == "digits") and not looked_into and (data.folder or "data_dir" in typed):
        why = "your own data are read from where --data says" if own else "digits come with scikit-learn"
        raise BadValue(f"--data-dir {data.folder}: {why}, so no folder is looked into. Leave it out.")
    if data.test and not own and (data.test not in NAMES or data.test == data.name):
        raise BadValue(
            f"--test-data {data.test}: {data.name} has a public test split of its own. Leave it out, or name another data set."
        )
    for name, key in KEYS.items():
        field = key.path.rpartition(".")[2]
        if own and key.shares_out and (name in typed or not _is_default(data, field)):
            raise BadValue(
                f"{flag(name)} {getattr(data, field)}: your own data come with their clients, so nothing is shared out or held "
                f"back. Leave it out (in a config: {key.path})."
            )


def _is_default(data: DataRequest, name: str) -> bool:
    """Whether a value may stand there unasked; 0 records per client is the default of all data but digits."""
    value = getattr(data, name)
    return value == getattr(DataRequest(data.name), name) or (name == "records_per_client" and value in (0, 7))
