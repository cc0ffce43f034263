"""What the training runs of several papers' tables share: how they start, how they are measured, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

from sfumato.account import accountant
from sfumato.account.event import Event, Repeated, why_not_private
from sfumato.data.load import build_population, hold_out, load
from sfumato.data.population import Population, Records
from sfumato.data.sets import Dataset
from sfumato.engine.simulation import Progress, Simulation
from sfumato.key import Key
from sfumato.models import build
from sfumato.objective import Objective, classification, evaluate, next_character, regression
from sfumato.reproduce.table import Settings

Curve = list[list[float]]


@contextmanager
def threads_of(settings: Settings) -> Iterator[None]:
    """As many threads as the settings say: one is as fast for small models, and waits for nobody."""
    before = torch.get_num_threads()
    torch.set_num_threads(settings.get("threads", before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Start:
    """What a seed gives a run: who has which records, and the untrained model."""

    dataset: Dataset
    population: Population
    objective: Objective
    module: nn.Module

    @classmethod
    def of(cls, settings: Settings, seed: int, dataset: Dataset, records: int | None) -> Start:
        """So many records for each client, or all that it has."""
        root = Key.from_seed(seed)
        population = build_population(dataset, settings["clients"], settings["split"], root.child("split"), records)
        module = build(settings["model"], dataset.input_shape, dataset.classes, root.child("model"))
        return cls(dataset, population, _objective(dataset), module)


@lru_cache(maxsize=2)
def dataset_of(name: str, held_out: int) -> Dataset:
    """The data set, with a public validation part if one is held out; every seed holds out the same one."""
    found = load(name)
    return hold_out(found, held_out, Key.from_seed(0)) if held_out else found


def _objective(dataset: Dataset) -> Objective:
    if dataset.task == "regression":
        return regression()
    return (next_character if dataset.task == "next-character" else classification)(dataset.classes)


def evaluated(run: Simulation, settings: Settings, public: Records, curve: Curve, measure: str) -> Iterator[Progress]:
    """The run's rounds; round, loss and measure go on the curve every so often, and after the last one."""
    every, rounds = settings.get("evaluate_every", 1), settings["rounds"]
    for progress in run:
        if progress.round % every == 0 or progress.round == rounds:
            found = evaluate(progress.module, public, run.job.objective)
            curve.append([progress.round, found["loss"], found[measure]])
        yield progress


@lru_cache(maxsize=64)
def proven(world: Event, rounds: int, delta: float) -> float | None:
    """The epsilon of all rounds; None where nothing is proven."""
    if why_not_private(world) is not None:
        return None
    return accountant("auto").epsilon(Repeated(world, rounds), delta)
