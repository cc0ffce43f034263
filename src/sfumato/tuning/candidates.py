"""Which settings are tried: keys of run.toml, each with a list of values, in all combinations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sfumato.calibration import noise_and_clip
from sfumato.errors import BadValue
from sfumato.run.prepare import Prepared, built, refuse_unrequested, round_and_order
from sfumato.run.request import Request
from sfumato.run.settings_text import parse_setting
from sfumato.update import Layout

_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
Settings = Mapping[str, Any]  # by keys of run.toml


def candidates(request: Request, words: Sequence[str]) -> tuple[Settings, ...]:
    """What `--vary KEY=VALUE,VALUE` says; without any, learning rates around the one that the request has.

    >>> candidates(Request(), ["options.server_lr=1,2", "rounds=30"])
    ({'options.server_lr': 1, 'rounds': 30}, {'options.server_lr': 2, 'rounds': 30})
    """
    if not words:
        key = "options.lr" if request.central else "options.server_lr"
        rate = request.options.get(key.partition(".")[2])
        if rate is None:
            raise BadValue(
                f"tune: {request.recipe or 'this round'} has no {key} to vary. Say what to try: --vary KEY=VALUE,VALUE."
            )
        return tuple({key: float(f"{factor * rate:.3g}")} for factor in _FACTORS)
    tried: dict[str, list[Any]] = {}
    for word in words:
        key, equals, values = word.partition("=")
        if not (key.startswith("options.") or key == "rounds") or not equals or not values:
            raise BadValue(
                f"--vary {word}: write rounds=30,60 or an option of the recipe, e.g. options.server_lr=0.5,1,2."
            )
        if key in tried:
            raise BadValue(f"--vary {word}: {key} was given before. Put all its values into one --vary.")
        tried[key] = [parse_setting(f"{key}={value}")[1] for value in values.split(",")]
    return tuple(dict(zip(tried, values, strict=True)) for values in itertools.product(*tried.values()))


def with_settings(prepared: Prepared, settings: Settings, *, noise: float | None = None) -> Prepared:
    """The same run with other settings: with this noise multiplier, or with what its budget asks for."""
    request = prepared.request
    for key, value in settings.items():
        request = request.with_value(key, value)
    found = {} if noise is None else {"noise_multiplier": noise}
    layout = Layout.of(prepared.module)
    trained = built(request, prepared.public, prepared.outputs)
    refuse_unrequested(request, trained)
    round, order = round_and_order(request, found, trained, prepared.budgets, prepared.public, layout)
    return replace(prepared, request=request, round=round, order=order)


def noise_of(prepared: Prepared) -> float:
    """The noise multiplier of a run's round."""
    noise, _ = noise_and_clip(prepared.round)
    if noise is None:
        raise BadValue(
            f"tune: {prepared.request.recipe or 'this round'} adds no noise, so there is no budget to plan with."
        )
    return noise


def in_words(settings: Settings) -> str:
    """Settings as they are shown: `server_lr 2, rounds 60`."""
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in settings.items())
