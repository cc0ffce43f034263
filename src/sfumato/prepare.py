"""From a request to everything that a run needs: data, model, objective, and a Round with its noise."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from sfumato import recipes
from sfumato.calibration import calibrate
from sfumato.data.load import NAMES, build_population
from sfumato.data.load import load as load_data
from sfumato.data.population import Population, PublicData
from sfumato.errors import BadValue, DataError
from sfumato.guarantee import check_delta
from sfumato.imports import import_path
from sfumato.key import Key
from sfumato.models import build as build_model
from sfumato.objective import Objective, classification, multi_label, regression
from sfumato.request import Request
from sfumato.round import Round


@dataclass(frozen=True)
class Prepared:
    """Everything that a request names, loaded and calibrated."""

    request: Request
    population: Population
    test: PublicData | None
    module: nn.Module
    objective: Objective
    round: Round
    input_shape: tuple[int, ...]
    outputs: int


def prepare(request: Request) -> Prepared:
    """Load the data, build the model, and find the noise; refuses before anything is spent."""
    check_delta(request.chosen_delta)
    population, test, outputs = _data(request)
    objective = _objective(request.data.task, outputs)
    shape = _input_shape(population, test)
    module = model_of(request, shape, outputs)
    return Prepared(request, population, test, module, objective, _round(request), shape, outputs)


def model_of(request: Request, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The model before training; its weights come from a public seed."""
    return build_model(request.model.name, input_shape, outputs, Key.from_seed(request.model.seed).child("model"))


def _round(request: Request) -> Round:
    clients = request.data.clients
    options = dict(request.options)
    round = recipes.build(request.recipe, clients, options)
    if request.unproven and not round.unproven:
        round = replace(round, unproven=True)
    if request.epsilon is not None and round.nonprivate:
        raise BadValue(f"the recipe {request.recipe!r} hides nothing, so no epsilon can be asked of it. Use dp-fedavg.")
    if request.epsilon is not None and "noise_multiplier" not in options:
        round = calibrate(
            round, epsilon=request.epsilon, delta=request.chosen_delta, rounds=request.rounds, population=clients
        )
    return round


def _data(request: Request) -> tuple[Population, PublicData | None, int]:
    data = request.data
    if data.name in NAMES or (":" not in data.name and not Path(data.name).is_dir()):
        dataset = load_data(data.name, data.folder or None)
        key = Key.from_seed(data.split_seed).child("split")
        population = build_population(
            dataset, data.clients, data.split, key, data.records_per_client or None, data.test_fraction
        )
        return population, dataset.test, data.outputs or dataset.classes
    test = None
    if Path(data.name).is_dir():
        population = Population.from_folder(data.name)
    else:
        found = import_path(data.name)
        found = found() if callable(found) and not isinstance(found, Population) and _no_arguments(found) else found
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], PublicData):
            found, test = found
        population = found if isinstance(found, Population) else Population.from_import(data.name, data.clients)
    if population.size < data.clients:
        raise BadValue(
            f"clients={data.clients}, but {data.name!r} has {population.size}. Declare at most what is there."
        )
    if not data.outputs:
        raise BadValue(
            f"data {data.name!r} does not say how many outputs a model needs. Give --outputs, e.g. the classes."
        )
    return replace(population, size=data.clients), test, data.outputs


def _no_arguments(function: Any) -> bool:
    return not inspect.signature(function).parameters


def _objective(task: str, outputs: int) -> Objective:
    known = {"classification": classification, "multi-label": multi_label}
    if task == "regression":
        return regression()
    if task not in known:
        raise BadValue(f"task={task!r}: use classification, multi-label or regression.")
    return known[task](outputs)


def _input_shape(population: Population, test: PublicData | None) -> tuple[int, ...]:
    if test is not None:
        return tuple(test.records.x.shape[1:])
    for client in range(min(population.size, 1000)):
        records = population.client(client).train
        if records.count:
            return tuple(records.x.shape[1:])
    raise DataError(f"none of the first clients of {population.name!r} has a record. Give clients with data.")
