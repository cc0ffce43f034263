"""One training run of a client-level algorithm, as the tables of DP-Fed-LS and DP-FedSAM need it."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

from sfumato import recipes
from sfumato.calibration import calibrate, noise_and_clip
from sfumato.data.population import PublicData, Records
from sfumato.data.sets import Dataset
from sfumato.engine.plan import Plan
from sfumato.engine.simulate import simulate
from sfumato.key import Key
from sfumato.objective import evaluate
from sfumato.pieces.mask import PublicTopK, SharedMask
from sfumato.reproduce.clips import clip_statistics
from sfumato.reproduce.landscape import landscape
from sfumato.reproduce.table import Settings, Work
from sfumato.reproduce.training import Curve, Start, dataset_of, evaluated, proven, threads_of
from sfumato.round import Round

_TRAIN_RECORDS = 5_000  # on which training accuracy is measured
_LANDSCAPE_RECORDS = 500


def train(settings: Settings, seed: int) -> dict[str, Any]:
    """Train for all rounds. The curve holds loss and accuracy on validation records, or on test records without any."""
    with threads_of(settings):
        return _train(settings, seed)


TRAIN = Work("sfumato.reproduce.client_level.train", train)


def _train(settings: Settings, seed: int) -> dict[str, Any]:
    dataset = dataset_of(settings["data"], settings.get("held_out", 0))
    start = Start.of(settings, seed, dataset, settings["records"])
    round, rounds, objective = round_of(settings, dataset), settings["rounds"], start.objective
    public = dataset.test if settings.get("curve_on") == "test" else dataset.validation or dataset.test
    plan, watched = Plan(*settings["plan"]) if settings.get("plan") else None, bool(settings.get("norms"))
    curve: Curve = []
    norms: list[Any] = []
    facts: dict[str, Any] = {"rounds": rounds, "seed": seed, "plan": plan, "diagnostics": watched}
    run = simulate(round, start.population, start.module, objective, **facts)
    for progress in evaluated(run, settings, public.records, curve, "accuracy"):
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


def _some(dataset: Dataset, most: int) -> Records:
    """So many training records, from all over the pool."""
    pool, rows = dataset.pool, slice(None, None, max(1, dataset.pool.count // most))
    return Records(dataset.scaling(pool.x[rows][:most]), pool.y[rows][:most])
