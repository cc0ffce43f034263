"""One training run of a client-level algorithm, as the tables of DP-Fed-LS and DP-FedSAM need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from sfumato import recipes
from sfumato.account import accountant
from sfumato.account.event import Event, Repeated, why_not_private
from sfumato.calibration import calibrate, noise_and_clip
from sfumato.data.held_out import hold_out
from sfumato.data.load import build_population, load
from sfumato.data.population import PublicData, Records
from sfumato.data.sets import Dataset
from sfumato.engine.plan import Plan
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Progress
from sfumato.key import Key
from sfumato.models import build
from sfumato.objective import Objective, classification, evaluate, next_character
from sfumato.pieces.mask import PublicTopK, SharedMask
from sfumato.report.curves import Curve
from sfumato.reproduce.clips import clip_statistics
from sfumato.reproduce.landscape import landscape
from sfumato.reproduce.table import Done
from sfumato.round import Round

_TRAIN_RECORDS = 5_000  # on which training accuracy is measured
_LANDSCAPE_RECORDS = 500


def train(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Train for all rounds. The curve holds loss and accuracy on validation records, or on test records without any."""
    threads = torch.get_num_threads()
    torch.set_num_threads(
        settings.get("threads", threads)
    )  # small models: one is as fast, and waits for no other program
    try:
        return _train(settings, seed)
    finally:
        torch.set_num_threads(threads)


def _train(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    dataset, root = dataset_of(settings["data"], settings.get("held_out", 0)), Key.from_seed(seed)
    split, records = settings["split"], settings["records"]
    population = build_population(dataset, settings["clients"], split, root.child("split"), records)
    text = dataset.task == "next-character"
    objective = next_character(dataset.classes) if text else classification(dataset.classes)
    module = build(settings["model"], dataset.input_shape, dataset.classes, root.child("model"))
    round, rounds, every = round_of(settings, dataset), settings["rounds"], settings.get("evaluate_every", 1)
    public = dataset.test if settings.get("curve_on") == "test" else dataset.validation or dataset.test
    curve: list[list[float]] = []
    notes: list[Any] = []
    plan = settings.get("plan")
    run = simulate(
        round,
        population,
        module,
        objective,
        rounds=rounds,
        seed=seed,
        plan=Plan(*plan) if plan else None,
        diagnostics=bool(settings.get("norms")),
    )
    for progress in run:
        if progress.round % every == 0 or progress.round == rounds:
            found = evaluate(progress.module, public.records, objective)
            curve.append([progress.round, found["loss"], found["accuracy"]])
        if progress.diagnostics is not None:
            notes.append(progress.diagnostics["norms"])
    noise, clip = noise_and_clip(round)
    return {
        "accuracy": evaluate(progress.module, dataset.test.records, objective)["accuracy"],
        "train_accuracy": _on_train(progress, dataset, objective) if settings.get("gap") else None,
        "epsilon": proven(run.derivation.primary.world, rounds, settings["delta"]),
        "noise": None if noise is None or clip is None else noise * clip,
        "curve": curve,
        "clips": clip_statistics(notes, clip) if notes and clip else None,
        "landscape": _around(progress, dataset, objective, settings) if settings.get("landscape") else None,
    }


@lru_cache(maxsize=2)
def dataset_of(name: str, held_out: int) -> Dataset:
    """The data set, with a public validation part if one is held out; every seed holds out the same one."""
    found = load(name)
    return hold_out(found, held_out, Key.from_seed(0)) if held_out else found


def round_of(settings: Mapping[str, Any], dataset: Dataset) -> Round:
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


def _sample(records: Records, dataset: Dataset, most: int) -> Records:
    rows = slice(None, None, max(1, records.count // most))
    return Records(dataset.scaling(records.x[rows][:most]), records.y[rows][:most])


def _on_train(progress: Progress, dataset: Dataset, objective: Objective) -> float:
    return evaluate(progress.module, _sample(dataset.pool, dataset, _TRAIN_RECORDS), objective)["accuracy"]


def _around(progress: Progress, dataset: Dataset, objective: Objective, settings: Mapping[str, Any]) -> dict[str, Any]:
    records = _sample(dataset.pool, dataset, _LANDSCAPE_RECORDS)
    points: int = settings["landscape"]
    return landscape(progress.module, records, objective, Key.from_seed(0), points=points).to_json()


def banded(name: str, index: int, done: Sequence[Done], place: int) -> Curve:
    """The mean over seeds of a column of the curves, with the standard deviation as a band."""
    columns = [[(point[0], point[place]) for point in one.result["curve"]] for one in done]
    xs = tuple(float(x) for x, _ in columns[0])
    values = np.array([[y for _, y in column] for column in columns], dtype=np.float64)
    mean, spread = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(xs))
    band = (tuple(mean - spread), tuple(mean + spread)) if len(values) > 1 else ((), ())
    return Curve(name, index, xs, tuple(map(float, mean)), low=band[0], high=band[1])
