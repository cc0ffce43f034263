"""`--auto`: a request with settings that were chosen from public facts, and the reasons."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from sfumato import recipes
from sfumato.errors import BadValue
from sfumato.features import Features, Parted, UnitNorm, Unlearnt, parse_features
from sfumato.pieces.sampler import parse_sampler
from sfumato.planning.auto import Choice, Known, choose
from sfumato.run.request import Request
from sfumato.run.settings_text import typed
from sfumato.run.source import Source


@dataclass(frozen=True)
class Auto:
    """That settings are to be chosen: all but the `kept` keys of run.toml, for a training of about so many seconds."""

    kept: frozenset[str] = frozenset()
    seconds: float = 10.0


def chosen(request: Request, source: Source, auto: Auto) -> tuple[Request, tuple[Choice, ...]]:
    """The request with what `choose` says, but for what is kept as the user gave it."""
    known, kept = known_of(request, source, auto), auto.kept
    if "model.name" in kept and request.model.name != "logistic":
        raise BadValue(
            f"--model {request.model.name}: --auto knows good settings of a linear model on features. Leave --model or --auto out."
        )
    options = recipes.find(request.recipe).options
    kept |= {"options.steps"} if "options.epochs" in kept else set()
    choices = []
    for choice in choose(known):
        table, _, name = choice.key.rpartition(".")
        if choice.key in kept or (table == "options" and name not in options):
            continue
        request = request.with_value(choice.key, choice.value)
        choices.append(choice)
    return request, tuple(choices)


def known_of(request: Request, source: Source, auto: Auto) -> Known:
    """The public facts of a request: what is declared of its data, and what is asked for."""
    if not is_known(request):
        raise BadValue(
            f"--auto: {request.recipe or 'this round'} is none of those that it knows good settings for. Use dp-fedavg or its "
            "kind, where clients are hidden, or dp-sgd, where records are; or leave it out."
        )
    if request.epsilon is None:
        raise BadValue(
            "--auto chooses for one budget. Give --epsilon, e.g. 2, and no --noise-multiplier, --budgets or --unproven."
        )
    data, features = request.data, request.data.features if "data.features" in auto.kept else None
    records = data.records_per_client
    if request.central:
        records = int(request.options["records"])
    elif not records and source.dataset is not None:
        records = source.dataset.pool.count // data.clients
    known = Known(
        central=request.central,
        clients=data.clients,
        records=records,
        classes=source.outputs,
        shape=source.shape,
        task=data.task,
        epsilon=request.epsilon,
        delta=request.chosen_delta,
        public=None if source.public is None else source.public.name,
        seconds=auto.seconds,
    )
    known = _with_settings(known, request, auto.kept)
    if features is not None:
        return _with_features(known, features, source)
    if source.public is not None and (shape := tuple(source.public.records.x.shape[1:])) != source.shape:
        raise BadValue(
            f"--auto: a basis of {source.public.name}, with records of shape {shape}, is none of records of shape {source.shape}. "
            "Give public records of that shape, or --features that bring both to one, e.g. resize:16,pca:50,unit-norm:3."
        )
    return known


def is_known(request: Request) -> bool:
    """Whether settings can be chosen for the recipe."""
    if request.pieces is not None:
        return False
    recipe = recipes.find(request.recipe)
    while recipe.extends:
        recipe = recipes.RECIPES[recipe.extends]
    return recipe.central or recipe.name == "dp-fedavg"


def _with_settings(known: Known, request: Request, kept: frozenset[str]) -> Known:
    """The facts of settings that the user chose, with which what is chosen must go."""
    options, central = request.options, request.central
    if "rounds" in kept:
        known = replace(known, rounds=request.rounds)
    if "options.clip" in kept:
        known = replace(known, clip=typed("options.clip", "float", options["clip"]))
    drawn, moves, rate = ("batch", "optimizer", "lr") if central else ("sample", "server_optimizer", "server_lr")
    if f"options.{drawn}" in kept:
        sampler = parse_sampler(typed(f"options.{drawn}", "str", options[drawn]), option=drawn)
        known = replace(known, rate=min(1.0, sampler.expected(known.units) / known.units))
    if central and "options.momentum" in kept:
        known = replace(known, momentum=typed("options.momentum", "float", options["momentum"]))
    chosen = options[moves] if f"options.{moves}" in kept else "momentum"
    if chosen == "adam" and f"options.{rate}" not in kept:
        raise BadValue(
            f"--{moves.replace('_', '-')} adam: --auto knows learning rates of sgd and momentum. Give --{rate.replace('_', '-')} "
            "too, or leave one out."
        )
    return replace(known, momentum=0.0) if chosen == "sgd" else known


def _with_features(known: Known, words: str, source: Source) -> Known:
    """The facts of features that the user chose: how many numbers they make of a record, and their norm."""
    parted = Parted.of(words)
    steps = () if parted.before is None else parse_features(parted.before, source.public).steps
    if parted.word is not None:
        after = () if parted.after is None else parse_features(parted.after).steps
        steps = (*steps, Unlearnt(parted.word.dimension), *after)
    features = Features(steps)
    last = features.steps[-1]
    if not isinstance(last, UnitNorm):
        raise BadValue(
            f"--features {words}: --auto knows learning rates for features of one norm only. End them with unit-norm:3, or leave "
            "--features out."
        )
    width = features(torch.zeros(1, *known.shape)).flatten(1).shape[1]
    return replace(known, features=words, width=width, norm=float(last.norm))
