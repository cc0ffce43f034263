"""One training run of a client-level algorithm, as the tables of DP-Fed-LS and DP-FedSAM need it."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

import torch

from sfumato import recipes
from sfumato.account import accountant
from sfumato.account.event import Event, Repeated, why_not_private
from sfumato.calibration import calibrate, noise_and_clip
from sfumato.data.load import build_population, hold_out, load
from sfumato.data.population import PublicData, Records
from sfumato.data.sets import Dataset
from sfumato.engine.plan import Plan
from sfumato.engine.simulate import simulate
from sfumato.key import Key
from sfumato.models import build
from sfumato.objective import classification, evaluate, next_character
from sfumato.pieces.mask import PublicTopK, SharedMask
from sfumato.reproduce.clips import clip_statistics
from sfumato.reproduce.landscape import landscape
from sfumato.reproduce.table import Settings, Work
from sfumato.round import Round

_TRAIN_RECORDS = 5_000  # on which training accuracy is measured
_LANDSCAPE_RECORDS = 500


def train(settings: Settings, seed: int) -> dict[str, Any]:
    """Train for all rounds. The curve holds loss and accuracy on validation records, or on test records without any."""
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.get("threads", threads))  # one is as fast for small models, and waits for nobody
    try:
        return _train(settings, seed)
    finally:
        torch.set_num_threads(threads)


TRAIN = Work("sfumato.reproduce.client_level.train", train)


def _train(settings: Settings, seed: int) -> dict[str, Any]:
    dataset, root = dataset_of(settings["data"], settings.get("held_out", 0)), Key.from_seed(seed)
    split, records = settings["split"], settings["records"]
    population = build_population(dataset, settings["clients"], split, root.child("split"), records)
    text = dataset.task == "next-character"
    objective = next_character(dataset.classes) if text else classification(dataset.classes)
    module = build(settings["model"], dataset.input_shape, dataset.classes, root.child("model"))
    round, rounds, every = round_of(settings, dataset), settings["rounds"], settings.get("evaluate_every", 1)
    public = dataset.test if settings.get("curve_on") == "test" else dataset.validation or dataset.test
    plan, watched = Plan(*settings["plan"]) if settings.get("plan") else None, bool(settings.get("norms"))
    curve: list[list[float]] = []
    norms: list[Any] = []
    run = simulate(round, population, module, objective, rounds=rounds, seed=seed, plan=plan, diagnostics=watched)
    for progress in run:
        if progress.round % every == 0 or progress.round == rounds:
            found = evaluate(progress.module, public.records, objective)
            curve.append([progress.round, found["loss"], found["accuracy"]])
        if progress.diagnostics is not None:
            norms.append(progress.diagnostics["norms"])
    noise, clip = noise_and_clip(round)
    result: dict[str, Any] = {
        "accuracy": evaluate(progress.module, dataset.test.records, objective)["accuracy"],
        "train_accuracy": None,
        "epsilon": proven(run.derivation.primary.world, rounds, settings["delta"]),
        "noise": None if noise is None or clip is None else noise * clip,
        "curve": curve,
        "clips": clip_statistics(norms, clip) if norms and clip else None,
        "landscape": None,
    }
    if settings.get("gap"):
        result["train_accuracy"] = evaluate(progress.module, _some(dataset, _TRAIN_RECORDS), objective)["accuracy"]
    if points := settings.get("landscape"):
        near = _some(dataset, _LANDSCAPE_RECORDS)
        result["landscape"] = asdict(landscape(progress.module, near, objective, Key.from_seed(0), points))
    return result


@lru_cache(maxsize=2)
def dataset_of(name: str, held_out: int) -> Dataset:
    """The data set, with a public validation part if one is held out; every seed holds out the same one."""
    found = load(name)
    return hold_out(found, held_out, Key.from_seed(0)) if held_out else found


def round_of(settings: Settings, dataset: Dataset) -> Round:
    """The recipe with those settings that it has options for; `mask="public"` takes Fed-SMP's mask from validation records."""
    known, recipe = recipes.find(settings["recipe"]).options, settings["recipe"]
    options = {name: value for name, value in settings.items() if name in known and value is not None}
    if options.get("mask") != "public":
        return recipes.build(recipe, settings["clients"], options)
    assert isinstance(dataset.validation, PublicData), "a public mask needs records that were held out"
    round = recipes.build(recipe, settings["clients"], options | {"mask": "random"})
    return replace(round, client=(SharedMask(settings["keep"], PublicTopK(dataset.validation)), *round.client[1:]))


@lru_cache(maxsize=64)
def noise_for(sample: str, clients: int, rounds: int, epsilon: float, delta: float) -> float:
    """The smallest noise multiplier that is proven enough: it depends on sampling and rounds only, whatever is trained."""
    round = recipes.build("dp-fedavg", clients, {"sample": sample})
    found = calibrate(round, epsilon=epsilon, delta=delta, rounds=rounds, population=clients)
    noise, _ = noise_and_clip(found)
    assert noise is not None
    return noise


@lru_cache(maxsize=64)
def proven(world: Event, rounds: int, delta: float) -> float | None:
    """The epsilon of all rounds; None where nothing is proven."""
    if why_not_private(world) is not None:
        return None
    return accountant("auto").epsilon(Repeated(world, rounds), delta)


def _some(dataset: Dataset, most: int) -> Records:
    """So many training records, from all over the pool."""
    pool, rows = dataset.pool, slice(None, None, max(1, dataset.pool.count // most))
    return Records(dataset.scaling(pool.x[rows][:most]), pool.y[rows][:most])
