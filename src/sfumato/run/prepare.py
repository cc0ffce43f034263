"""From a request to everything that a run needs: data, model, objective, and a Round with its noise."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from sfumato import recipes
from sfumato.budget.budgets import Budgets
from sfumato.calibration import calibrate, with_noise
from sfumato.data.load import NAMES, as_public, build_population, hold_out, share_records
from sfumato.data.load import load as load_data
from sfumato.data.population import Client, Population, PublicData, Records, require_public
from sfumato.errors import BadValue, DataError, SfumatoError, nearest
from sfumato.exact_round import secure
from sfumato.features import Features, Fit, Step, parse_features
from sfumato.guarantee import check_delta
from sfumato.imports import import_path, is_import_path
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.models import build as build_model
from sfumato.objective import Objective, classification, multi_label, next_character, regression
from sfumato.pieces.sampler import FixedSize
from sfumato.round import Round
from sfumato.run.budgeted import budgeted
from sfumato.run.central import check_central, held_together
from sfumato.run.read_round import read_round
from sfumato.run.request import DataRequest, ModelRequest, Request, typed
from sfumato.update import Layout


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
    counts: Mapping[str, int]  # what the folder of a named data set held; nothing of a user's own data is counted
    budgets: Budgets | None = None  # each client's own, by number
    public: PublicData | None = None  # what the round may use as such


def prepare(request: Request, found: Mapping[str, Any] | None = None) -> Prepared:
    """Load the data, build the model, and find the noise; refuses before anything is spent.

    `found` is what stands in run.toml under [resolved]: a run that goes on keeps its noise, and with budgets its whole round,
    however many rounds it gets.
    """
    request.require_named("simulate(round, population, module, objective, ...).")
    central, own_data = request.central, is_own_data(request.data.name)
    if central:
        check_central(request, own_data)
    if not request.budgets or request.delta is not None:
        check_delta(request.chosen_delta)
    found_data = _with_features(request.data, _with_public(request.data, _data(request.data, central)))
    population, test, outputs, counts = found_data.population, found_data.test, found_data.outputs, found_data.counts
    if central:
        request, population = held_together(request, population, own_data)
    budgets = Budgets.of(request.budgets, population.size, population.ids) if request.budgets else None
    if budgets is not None and request.delta is None:
        request = replace(request, delta=budgets.delta)
    objective = _objective(request.data.task, outputs)
    shape = tuple(example(population, test).x.shape[1:])
    module = model_of(request.model, shape, outputs)
    round = _round(request, found or {}, budgets, found_data.public, Layout.of(module), outputs)
    known = shape, outputs, counts, budgets, found_data.public
    return Prepared(request, population, test, module, objective, round, *known)


def model_of(request: ModelRequest, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The model before training; its weights come from a public seed."""
    key = Key.from_seed(request.seed).child("model")
    with _naming(f"the model {request.name!r}"):
        return build_model(request.name, input_shape, outputs, key)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """What a user's own code raises becomes a sentence that says whose code it was."""
    try:
        yield
    except SfumatoError:
        raise
    except Exception as error:
        raise BadValue(f"{what} failed: {type(error).__name__}: {error}. Mend the function, and try again.") from error


def _round(
    request: Request,
    found: Mapping[str, Any],
    budgets: Budgets | None,
    public: PublicData | None,
    layout: Layout,
    outputs: int,
) -> Round:
    clients, name = request.data.clients, request.recipe
    options = _typed(request)
    if request.pieces is None and "classes" in recipes.find(name).options:
        options = {"classes": outputs, **options}
    if request.data.public and request.pieces is None and not recipes.find(name).takes_public:
        public = None  # it tests on the public domain, and that is all
    round = recipes.build(name, clients, options, public) if request.pieces is None else read_round(request.pieces)
    round = secure(round) if request.secure else round
    _check_records(request.data, round)
    if request.unproven and not round.unproven:
        round = replace(round, unproven=True)
    if request.epsilon is not None and round.nonprivate:
        raise BadValue(
            f"{request.recipe or 'this round'} hides nothing, so no epsilon can be asked of it. Leave --epsilon out (--set "
            "epsilon=none takes it out of a config), or use dp-fedavg."
        )
    if request.pieces is not None:
        return round
    dimension = round.local.message_length(layout)
    if "round" in found:  # a run that goes on, in which clients have settings of their own
        return read_round(found["round"], public)
    if budgets is not None:
        return budgeted(round, budgets, request, clients, dimension, options.get("noise_multiplier"))
    if (noise_multiplier := found.get("noise_multiplier")) is not None:
        return with_noise(round, noise_multiplier) if request.epsilon and not request.noise_is_given else round
    if request.epsilon is not None and not request.noise_is_given:
        if round.unproven:
            raise BadValue(
                f"epsilon={request.epsilon}: what {name or 'this round'} does here is not proven, so no noise meets an epsilon. "
                "Give --noise-multiplier, e.g. 1.0, and no --epsilon; what is claimed, and what is known of that noise, is printed."
            )
        target = {"epsilon": request.epsilon, "delta": request.chosen_delta}
        round = calibrate(round, **target, rounds=request.rounds, population=clients, dimension=dimension)
    return budgeted(round, None, request, clients, dimension)


def _check_records(data: DataRequest, built: Round) -> None:
    """Refuse a declared number of records that no client can have, by what is declared alone."""
    local, share = built.local, data.records_per_client
    if not share or is_own_data(data.name) or not isinstance(local, DpSgd) or not isinstance(local.batch, FixedSize):
        return
    held = share - round(data.test_fraction * share)
    if held < local.records:
        raise BadValue(
            f"a client gets {held} records to train on, fewer than the {local.records} that are declared. Give --records {held} "
            "(and a --batch that fits), or more with --records-per-client."
        )


def _typed(request: Request) -> dict[str, Any]:
    """The recipe's options; a file may hold anything, so their types are checked."""
    if request.pieces is not None and request.options:
        raise BadValue(
            f"options.{next(iter(request.options))}: the round stands there whole, and takes no option of a recipe."
        )
    known = {} if request.pieces is not None else recipes.find(request.recipe).options
    for name, value in request.options.items():
        if name in known:
            typed(f"options.{name}", known[name].annotation.__name__, value)
    return request.options


@dataclass(frozen=True)
class _Data:
    population: Population
    test: PublicData | None
    outputs: int
    counts: Mapping[str, int]
    public: PublicData | None = None  # records for recipes that use public ones
    margin: int = 0  # round the box of the clients' pictures
    fit: tuple[Fit, ...] = ()  # what brings clients' pictures to the shape of the public ones


def _data(data: DataRequest, central: bool = False) -> _Data:
    """Clients, public test data, the outputs of a model, what the folder held, and what was set aside as public."""
    if not is_own_data(data.name):
        return _named_data(data)
    if is_import_path(data.name):
        with _naming(f"the data {data.name!r}"):
            population, test = _imported_data(data)
    else:
        population, test = Population.from_folder(data.name), None
    if data.test is not None:
        with _naming(f"the test data {data.test!r}"):
            found = import_path(data.test)
            test = require_public(
                found() if callable(found) and not isinstance(found, PublicData) else found, data.test
            )
    if not data.outputs:
        raise BadValue(
            f"data {data.name!r} does not say how many outputs a model needs. Give --outputs, e.g. the classes."
        )
    population = population if central else population.declared(data.clients)
    return _Data(population, test, data.outputs, {})


def _with_public(data: DataRequest, found: _Data) -> _Data:
    """With `data.public`, clients' pictures in the shape of that data set, which is what is public and what is tested on."""
    if data.public is None:
        return found
    if data.public_records is not None or data.test is not None:
        other = f"--test-data {data.test}" if data.public_records is None else f"--public-records {data.public_records}"
        raise BadValue(
            f"--public {data.public} and {other} exclude each other: both say what is public. Leave one out."
        )
    if share_records(data.public, data.name):
        raise BadValue(
            f"--public {data.public}: clients of {data.name} hold the same records, and what is public hides nobody. Give a data "
            "set that no client has, or --public-records."
        )
    dataset = load_data(data.public, data.folder or None).unscaled
    if dataset.task != data.task or dataset.classes != found.outputs:
        raise BadValue(
            f"--public {data.public} has {dataset.classes} outputs for {dataset.task}; {data.name} has {found.outputs} for "
            f"{data.task}. Give public records of the same classes."
        )
    public, test = as_public(dataset, Key.from_seed(data.split_seed))
    fit = Fit(tuple(public.records.x.shape[1:]), dataset.margin, found.margin)
    counts = {**found.counts, "public": public.records.count, "test": test.records.count}
    public = replace(public, pictures=public.records.x)
    return replace(found, fit=(fit,), public=public, test=test, counts=counts)


def _with_features(data: DataRequest, found: _Data) -> _Data:
    """All records mapped: clients' when they are drawn, public ones now."""
    features, test, public = Features(()), found.test, found.public
    if data.features is not None:
        with _naming(f"the features {data.features!r}"):
            features = parse_features(data.features, public)
            test, public = (_mapped(part, features) for part in (test, public))
    steps: tuple[Step, ...] = (*found.fit, *features.steps)
    if not steps:
        return found
    return replace(found, population=found.population.mapped(Features(steps)), test=test, public=public)


def _mapped(public: PublicData | None, features: Features) -> PublicData | None:
    return None if public is None else replace(public, records=Records(features(public.records.x), public.records.y))


def is_own_data(name: str) -> bool:
    """Whether a data set's name is a user's folder or function."""
    return name not in NAMES and (is_import_path(name) or "/" in name or Path(name).is_dir())


def _named_data(data: DataRequest) -> _Data:
    dataset = load_data(data.name, data.folder or None)
    if data.public or data.features:
        dataset = dataset.unscaled
    if (kinds := {"regression": "numbers", "multi-label": "labels that hold or not"}.get(dataset.task)) and (
        data.task != dataset.task
    ):
        raise BadValue(f"task={data.task!r}: the targets of {data.name} are {kinds}. Give --task {dataset.task}.")
    if data.task in ("classification", "next-character") and 0 < data.outputs < dataset.classes:
        raise BadValue(f"outputs={data.outputs}: {data.name} has {dataset.classes} classes. Leave --outputs out.")
    key = Key.from_seed(data.split_seed).child("split")
    share = data.records_per_client or None
    if data.public_records is not None:
        dataset = hold_out(dataset, data.public_records, Key.from_seed(data.split_seed), "public")
    population = build_population(dataset, data.clients, data.split, key, share, data.test_fraction)
    public = None if data.public_records is None else dataset.validation
    return _Data(population, dataset.test, data.outputs or dataset.classes, dataset.counts, public, dataset.margin)


def _imported_data(data: DataRequest) -> tuple[Population, PublicData | None]:
    """What `module:name` names or returns: clients, or a pair of clients and public test data."""
    found, test = import_path(data.name), None
    if callable(found) and not isinstance(found, Population) and not inspect.signature(found).parameters:
        found = found()
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], PublicData):
        found, test = found
    if isinstance(found, Population):
        return found, test
    if isinstance(found, Client) or (isinstance(found, tuple) and all(map(_is_array, found))):
        found = [found]  # one client
    if isinstance(found, list | tuple):
        return Population.from_list(found, name=data.name), test
    return Population.from_import(data.name, data.clients), test


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _objective(task: str, outputs: int) -> Objective:
    if task == "regression":
        return regression()
    known = {"classification": classification, "multi-label": multi_label, "next-character": next_character}
    if task not in known:
        raise BadValue(f"task={task!r}: there is no such task. {nearest(task, [*known, 'regression'])}")
    return known[task](outputs)


def example(population: Population, test: PublicData | None) -> Records:
    """Some records, for their shapes."""
    if test is not None:
        return test.records
    for client in range(min(population.size, 1000)):
        records = population.client(client).train
        if records.count:
            return records
    raise DataError(f"none of the first clients of {population.name!r} has a record. Give clients with data.")
