"""Run folders as `sfumato train` writes them, without training."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sfumato.account.event import Relation, Unit
from sfumato.guarantee import PUBLIC, Guarantee

ASSUMPTIONS = (
    "exact real-number arithmetic (floating point is not covered)",
    "the server is trusted",
    "simulation: holds for whoever does not know the seed",
)
_FACTS: dict[str, Any] = {
    "delta": 0.0029421,
    "view": PUBLIC,
    "unseen": "who took part in them",
    "sampling": "Poisson, rate 0.25 (must stay secret)",
    "accountant": "pld",
    "assumptions": ASSUMPTIONS,
}
WORLD = Guarantee(1.98761, unit=Unit.CLIENT, relation=Relation.ADD_REMOVE, mechanism="noise", reference=3.2, **_FACTS)
INSIDE = Guarantee(
    3.4111,
    unit=Unit.RECORD,
    relation=Relation.REPLACE,
    mechanism="more noise",
    reference=5.5,
    whole_client=True,
    **_FACTS,
)
AGAINST_SERVER = Guarantee(
    None,
    0.0029421,
    Unit.CLIENT,
    Relation.ADD_REMOVE,
    "the server",
    "auto",
    unproven="it sees the messages before any noise",
)
GUARANTEE, RECORD = (f"{one.headline[0].upper()}{one.headline[1:]}" for one in (WORLD, INSIDE))
SERVER = " ".join(str(AGAINST_SERVER).split())
STEPS = (
    ("sample", "Poisson(rate=0.25)", "neighbours: add/remove one client"),
    ("local", "Sgd(lr=0.5, epochs=5, batch_size=10)", "one client can move it without bound"),
    ("client", "Clip(norm=1.0)", "a message moves by at most 1"),
    ("channel", "Plain()", "a message moves by at most 1"),
    ("aggregate", "Mean(over=50.0)", "the aggregate moves by at most 0.02"),
    ("server", "AddNoise(law=Gaussian(noise_multiplier=1.84))", "private: whatever follows is free"),
    ("optimizer", "GradientDescent()", "private: whatever follows is free"),
)
TOML = """schema = 1
recipe = "dp-fedavg"
rounds = 40
epsilon = 2.0
seed = 918273
evaluate_every = 1

[data]
name = "digits"
clients = 200
split_seed = 0

[model]
name = "logistic"
seed = 0

[resolved]
noise_multiplier = 1.84
"""


def summary(**changes: Any) -> dict[str, Any]:
    """run.json of a proven run, with changes."""
    return {
        "schema": 2,
        "recipe": "dp-fedavg",
        "data": "digits",
        "model": "logistic",
        "input_shape": [1, 8, 8],
        "outputs": 10,
        "population": 200,
        "rounds": 40,
        "epsilon": 1.98761,
        "epsilon_server": None,
        "delta": 0.0029421,
        "accountant": "pld",
        "unit": "client",
        "relation": "add_remove",
        "noise_multiplier": 1.84,
        "stddev": 0.0368,
        "sensitivity": 0.02,
        "clip": 1.0,
        "accuracy": 0.9056,
        "primary": "accuracy",
        "metrics": {"loss": 0.3471, "accuracy": 0.9056, "balanced_accuracy": 0.9049, "macro_f1": 0.9038},
        "guarantee": str(WORLD),
        "guarantee_server": str(AGAINST_SERVER),
        "assumptions": list(ASSUMPTIONS),
        "guarantees": {
            "client": {"world": WORLD.to_json(), "server": AGAINST_SERVER.to_json()},
            "record": {"world": INSIDE.to_json()},
        },
        "nonprivate": False,
        "unproven": None,
        "stopped": "",
        "derivation": [{"slot": slot, "piece": piece, "states": states} for slot, piece, states in STEPS],
        "seed": 918273,
        "engine": {"path": "stacked", "block": 50, "workers": 1},
        "versions": {"sfumato": "0.1.0", "torch": "2.13.0", "python": "3.11.9"},
        "threads": 2,
        **changes,
    }


def lines(rounds: int, *, best: float = 0.92, every: int = 1, epsilon: float | None = 1.98761) -> list[dict[str, Any]]:
    """metrics.jsonl of a run that learns, evaluated every so many rounds."""
    found = []
    for round in range(1, rounds + 1):
        due = round % every == 0 or round == rounds
        accuracy = (
            best - (best - 0.1) * math.exp(-6.0 * round / rounds) + 0.012 * math.sin(round * 1.7) if due else None
        )
        spent = epsilon * math.sqrt(round / rounds) if due and epsilon is not None else None
        metrics = {} if accuracy is None else {"accuracy": accuracy, "loss": 1.0}
        found.append({"round": round, "epsilon": spent, "accuracy": accuracy, "metrics": metrics, "seconds": 0.3})
    return found


def write_run(folder: Path, values: dict[str, Any], rounds: Iterable[dict[str, Any]], toml: str = TOML) -> Path:
    """A run folder with these files."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(values, indent=2) + "\n")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rounds))
    (folder / "run.toml").write_text(toml)
    return folder


def proven(folder: Path, **changes: Any) -> Path:
    """A run with a guarantee."""
    return write_run(folder, summary(**changes), lines(40))


def unproven(folder: Path, **changes: Any) -> Path:
    """A run whose paper claims what we could not prove."""
    claim = {
        "claimed_epsilon": 1.5,
        "paper": "A. Author and B. Author, A claim too far (2021)",
        "step": "TopK comes after the noise shares, so a coordinate that few clients keep carries less noise.",
    }
    nothing = f"No proven guarantee for each client, against {PUBLIC}: nothing."
    values = summary(
        recipe="fed-topk",
        epsilon=None,
        accountant="auto",
        unproven=claim,
        guarantee=nothing,
        sensitivity=None,
        accuracy=0.871,
    )
    values["metrics"] = {"accuracy": 0.871, "loss": 0.41}
    values["guarantee_server"] = nothing.replace(PUBLIC, "the server")
    return write_run(folder, {**values, **changes}, lines(40, best=0.88, epsilon=None))


def baseline(folder: Path, **changes: Any) -> Path:
    """A run without privacy."""
    nothing = f"No proven guarantee for each client, against {PUBLIC}: the non-private baseline."
    values = summary(recipe="fedavg", epsilon=None, guarantee=nothing, guarantee_server=nothing, accuracy=0.951)
    values |= {"noise_multiplier": None, "stddev": None, "clip": None, "sensitivity": None, "accountant": "auto"}
    values["nonprivate"] = True
    values["metrics"] = {"accuracy": 0.951, "loss": 0.2}
    return write_run(folder, {**values, **changes}, lines(40, best=0.953, epsilon=None))
