"""What this library reaches by itself: `sfumato train ... --auto` at an epsilon, and nothing else chosen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from sfumato.objective import evaluate
from sfumato.reproduce.table import Cell, Settings, Work, seeded
from sfumato.reproduce.training import threads_of
from sfumato.run.auto import Auto
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request
from sfumato.run.run import Run


@dataclass(frozen=True)
class Task:
    """What is trained and on what. `held_to` has the accuracy in percent that each epsilon is to reach, if one is set."""

    words: str
    what: str
    recipe: str
    delta: float
    data: Mapping[str, Any]  # what is asked for of a DataRequest, and nothing that is left to its default
    held_to: Mapping[float, float | None]
    seconds: float | None = None  # of training, that it is held to

    def cells(self, seeds: int) -> list[Cell]:
        """Every epsilon, over so many seeds."""
        found: list[Cell] = []
        for epsilon, least in self.held_to.items():
            settings = {"recipe": self.recipe, "epsilon": epsilon, "delta": self.delta, **self.data}
            settings["seconds"] = 0.7 * (self.seconds or 10.0)  # what --auto plans for, with room for a slower machine
            paper = {"task": self.words, "what": self.what, "held_to": least, "held_to_seconds": self.seconds}
            found += seeded(seeds, f"Sfumato, {self.words}, {self.what}, epsilon {epsilon:g}", settings, TRAIN, paper)
        return found


def request(settings: Settings, seed: int) -> Request:
    """The one request of a cell: `sfumato train RECIPE --auto --seconds T --epsilon E --delta D --seed S --data ...`.

    The seed is that of the noise and of the split; data, recipe, epsilon and delta are all that is asked for. Without `seconds`
    it is the recipe as it is shipped, with the `model` and `options` that the settings name.
    """
    plain = Request.of_recipe(settings["recipe"])
    given: dict[str, Any] = {"records_per_client": 0, "split_seed": seed}
    given |= {part.name: settings[part.name] for part in fields(DataRequest) if part.name in settings}
    data = replace(plain.data, **given)
    model, options = replace(plain.model, name=settings.get("model", "logistic")), settings.get("options", {})
    asked = replace(plain, epsilon=settings["epsilon"], delta=settings["delta"], seed=seed, data=data)
    return replace(asked, model=model, options=options, rounds=settings.get("rounds", plain.rounds))


def _kept(settings: Settings) -> frozenset[str]:
    """The keys of run.toml that a cell's settings name, which --auto leaves as they are."""
    named = {"features": "data.features", "rounds": "rounds"}
    return frozenset(
        [
            *(key for name, key in named.items() if name in settings),
            *(f"options.{name}" for name in settings.get("options", {})),
        ]
    )


def ours(settings: Settings, seed: int) -> dict[str, Any]:
    """Train once, then read the test split once: accuracy, what is proven, and the seconds of the rounds.

    What is found out before (data, features, noise) is timed by itself. The test split is the data set's own.
    """
    with threads_of(settings):
        asked, started = request(settings, seed), time.perf_counter()
        prepared = prepare(asked, auto=Auto(_kept(settings), settings["seconds"]) if "seconds" in settings else None)
        assert prepared.test is not None, "data sets known by name have test splits"
        run, seconds = Run(prepared, None), 0.0
        preparing = time.perf_counter() - started
        for progress in run:
            seconds += progress.seconds
        found = evaluate(progress.module, prepared.test.records, prepared.objective)
        epsilon = progress.epsilon(run.delta)
    return {"accuracy": found["accuracy"], "epsilon": epsilon, "seconds": seconds, "preparing": preparing}


TRAIN = Work("sfumato.reproduce.frontier.ours", ours)

TASKS = {
    "mnist-public": Task(
        "MNIST, record", "--auto, public basis", "dp-sgd", 1e-5, {"name": "mnist", "public": "emnist-letters"},
        {1.0: 98.2, 2.0: 98.5, 3.0: 98.7}, 10.0,
    ),
    "mnist-data-free": Task(
        "MNIST, record", "--auto, data-free", "dp-sgd", 1e-5, {"name": "mnist"}, {1.0: 97.7, 3.0: 98.5}, 30.0
    ),
    "emnist-letters": Task(
        "EMNIST letters, client", "--auto, public basis", "dp-fedavg", 1 / 500,
        {
            "name": "emnist-letters", "clients": 500, "records_per_client": 120, "split": "dirichlet:0.6", "public": "mnist",
        },
        {1.0: 75.0, 2.0: 80.0, 4.0: 84.5, 8.0: 87.5}, 15.0,
    ),
}  # fmt: skip
QUICK = Task("digits, record", "--auto, data-free", "dp-sgd", 1e-4, {"name": "digits"}, {3.0: None})
