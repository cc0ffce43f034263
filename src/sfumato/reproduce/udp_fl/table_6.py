"""UDP-FL, Table 6: who was in the training data? Three membership attacks on CIFAR-10 by epsilon, beside what the paper prints."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from sfumato.audit.attack import Keep
from sfumato.audit.canary_record import CanaryRecord
from sfumato.audit.membership import Lira, Scores
from sfumato.audit.round_world import RoundWorld, one_by_one
from sfumato.audit.shokri import Shokri
from sfumato.audit.study import study
from sfumato.audit.units import Units
from sfumato.data.population import Population, Records
from sfumato.engine.plan import Plan
from sfumato.key import Key
from sfumato.models import build
from sfumato.objective import classification, evaluate
from sfumato.reproduce.show import minutes
from sfumato.reproduce.table import Cell, Group, Row, Settings, Table, Work, at, nothing, seeded
from sfumato.reproduce.training import dataset_of, proven, threads_of
from sfumato.reproduce.udp_fl import common
from sfumato.update import Layout

# TPR at FPR 0.01, accuracy and AUC at epsilon 2, 4, 6 and 8
PRINTED = {
    ("shokri", "gaussian"): ((0.009, 0.502, 0.493), (0.009, 0.505, 0.499), (0.013, 0.510, 0.509), (0.011, 0.503, 0.499)),
    ("shokri", "laplace"): ((0.011, 0.509, 0.508), (0.013, 0.512, 0.509), (0.014, 0.505, 0.501), (0.007, 0.505, 0.500)),
    ("shokri", "staircase"): ((0.009, 0.506, 0.501), (0.009, 0.505, 0.502), (0.009, 0.504, 0.499), (0.008, 0.504, 0.496)),
    ("lira", "gaussian"): ((0.013, 0.506, 0.497), (0.014, 0.513, 0.505), (0.017, 0.514, 0.511), (0.011, 0.504, 0.497)),
    ("lira", "laplace"): ((0.009, 0.506, 0.501), (0.013, 0.505, 0.495), (0.011, 0.505, 0.493), (0.009, 0.513, 0.505)),
    ("lira", "staircase"): ((0.008, 0.504, 0.491), (0.008, 0.510, 0.501), (0.009, 0.510, 0.504), (0.009, 0.507, 0.492)),
    ("canary", "gaussian"): ((0.016, 0.519, 0.513), (0.016, 0.510, 0.504), (0.015, 0.523, 0.528), (0.010, 0.521, 0.518)),
    ("canary", "laplace"): ((0.011, 0.504, 0.497), (0.020, 0.512, 0.498), (0.011, 0.510, 0.507), (0.015, 0.516, 0.507)),
    ("canary", "staircase"): ((0.009, 0.506, 0.495), (0.013, 0.512, 0.509), (0.009, 0.507, 0.500), (0.012, 0.511, 0.509)),
}  # fmt: skip
FREE = {"shokri": (0.053, 0.710, 0.757), "lira": (0.126, 0.651, 0.716), "canary": (0.137, 0.649, 0.719)}
_TESTED = 2000  # test pictures that say how good the models are
_SHOWN = ("tpr at fpr 0.01", "accuracy", "auc")
_METHODS = ("Laplace, as published", "Staircase, as published")
BASE = common.CIFAR | {
    "clients": 4, "records": 100, "batch": "poisson:0.2", "steps": 10, "rounds": 20, "lr": 0.2, "clipped": False,
    "models": 8, "canary_targets": 4, "canary_steps": 6,
}  # fmt: skip
QUICK = common.QUICK | {"records": 30, "models": 4, "canary_targets": 2, "canary_steps": 2}
FULL = {
    "model": "resnet-18",
    "clients": 10,
    "records": 1000,
    "batch": "poisson:0.05",
    "steps": 2,
    "rounds": 150,
    "models": 16,
}
_SCALED = (
    "400 members and 400 others in place of CIFAR-10, a CNN of 122,570 parameters in place of ResNet-18, 4 clients in place of 10, "
    "200 steps on Poisson batches of rate 0.2; 8 models for each line, one seed."
)
_NOTES = (
    "Each number: mean and 95 % band (Student's t) over models that are attacked in turn, the others but its opposite being the "
    "shadows (4 of 8 models for the canary). TPR* is the rate of true positives at a rate of false ones of at most 0.01; accuracy "
    "is that of the best threshold in hindsight, which scores that know nothing reach more than 0.5 of too.",
    "The attacker asks the final model, knows the recipe with all its settings, and both candidates for each place in the training "
    "data: each model has seen one of the two, by a coin.",
    "No ranking is claimed, of laws or of attacks: most gaps in the paper's table are 0.01 and smaller than these bands.",
    "What cannot be compared: the paper prints neither delta, nor how many shadows, members and others there were, nor how "
    "canaries were refined. Its text speaks of the FPR at a TPR of 0.01, its table of the reverse; the third attack in its "
    "caption, again called LiRA, is taken as Canary. The order of some of its columns is inferred.",
    "Proven rows hide each record at the epsilon that they name, whatever an attack finds. An attack that finds nothing proves "
    "nothing: rows as published have noise whose proven cost stands beside them.",
    "Every record is hidden, added or removed, at delta 1e-5, against everyone and against the server. The paper's rate of 0.05 "
    "and 2 steps a round would not let a model of so few records remember any: batches are larger here, and the noise is that "
    "which these cost.",
    common.NOTES[1],
)


def attacked(settings: Settings, seed: int) -> dict[str, Any]:
    """Train models on one of two candidates for each place, and attack each of them with the help of the others."""
    with threads_of(settings):
        return _attacked(settings, seed)


ATTACKED = Work("sfumato.reproduce.udp_fl.membership", attacked)


def _attacked(settings: Settings, seed: int) -> dict[str, Any]:
    world, test = world_of(settings, seed)
    keep, tell = Keep(None, seed), lambda line: None
    many, canary = settings["models"], CanaryRecord(steps=settings["canary_steps"])
    attacks: dict[Scores, int] = {Shokri(): many, Lira(): many, canary: settings["canary_targets"]}
    found, rows = study(attacks, world, many, keep, tell)
    derivation = world.round.derive(population=settings["clients"], dimension=Layout.of(world.module).dimension)
    return {
        "found": {name: {word: [mean, *band] for word, (mean, band) in one.items()} for name, one in found.items()},
        "accuracy": [_accuracy(world, row[-1], test) for row in rows],
        "epsilon": proven(derivation.primary.world, settings["rounds"], settings["delta"]),
        "really": common.really_of(
            world.round, settings["clients"], derivation.dimension, settings["rounds"], settings["delta"]
        ),
    }


def world_of(settings: Settings, seed: int) -> tuple[RoundWorld, Records]:
    """Two candidates for each place of all clients' records, by chance from the training pictures; and the test pictures."""
    dataset, root = dataset_of(settings["data"], 0), Key.from_seed(seed)
    clients, share = settings["clients"], settings["records"]
    places = clients * share
    order = torch.from_numpy(root.child("members").permutations(1, dataset.pool.count)[0][: 2 * places])
    x, y = dataset.scaling(dataset.pool.x[order]), dataset.pool.y[order]
    first, second = Records(x[:places], y[:places]), Records(x[places:], y[places:])
    people = [(first.x[start : start + share], first.y[start : start + share]) for start in range(0, places, share)]
    module = build(settings["model"], dataset.input_shape, dataset.classes, root.child("model"))
    at_places = torch.stack([torch.arange(places) // share, torch.arange(places) % share], dim=1)
    world = RoundWorld(
        common.round_of(settings, None, Layout.of(module).dimension), Population.from_list(people, name=dataset.name), module,
        classification(dataset.classes), settings["rounds"], Units.of_records(first, second), at_places, one_by_one(second),
        (settings["rounds"],), Plan("loop", 1, 1),
    )  # fmt: skip
    return world, Records(*(part[:_TESTED] for part in dataset.test.records))


def _accuracy(world: RoundWorld, row: torch.Tensor, test: Records) -> float:
    module = copy.deepcopy(world.module)
    Layout.of(module).write(row, module)
    return evaluate(module, test, world.objective)["accuracy"]


def table(scale: str) -> Table:
    """The table at a scale."""
    settings = {**BASE, **at(scale, QUICK, {}, FULL)}
    epsilons = at(scale, (8.0,), common.EPSILONS, common.EPSILONS)
    cells: list[Cell] = []
    for method in (common.GAUSSIAN, "Laplace", "Staircase", *_METHODS):
        own = common.METHODS[method]
        for epsilon in epsilons if method not in _METHODS else epsilons[-1:]:
            cells += _cells(scale, method, {**settings, **own, "epsilon": epsilon})
    cells += _cells(scale, common.NONE, {**settings, **common.FREE})
    title, words = "UDP-FL, Table 6: membership attacks", common.words(scale, _SCALED)
    return Table("udp-fl-table-6", title, common.PAPER, scale, cells, _row, nothing, words, _NOTES)


def _cells(scale: str, method: str, settings: Settings) -> list[Cell]:
    epsilon = settings["epsilon"]
    row = f"{common.label(settings)}, {method}" + ("" if epsilon is None else f", epsilon {epsilon:g}")
    return seeded(at(scale, 1, 1, 3), row, settings, ATTACKED, {"method": method})


def printed(attack: str, settings: Settings) -> tuple[float, ...]:
    """What the paper has for an attack on a law at an epsilon, whichever way it is accounted for here."""
    if settings["epsilon"] is None:
        return FREE[attack]
    law = settings["law"].removesuffix("-as-published")
    return PRINTED[attack, law][common.EPSILONS.index(settings["epsilon"])]


def _row(done: Group) -> Row:
    settings, paper = done[0].cell.settings, done[0].cell.paper
    row = {
        "noise": paper["method"],
        "accounting": settings["accounting"],
        "epsilon": common.name_of(settings["epsilon"]),
    }
    row["really"] = common.really(done)
    row["accuracy, ours"] = f"{100 * np.mean([one.result['accuracy'] for one in done]):.1f}"
    for attack, words in (("shokri", "Shokri"), ("lira", "LiRA"), ("canary", "Canary")):
        row[f"{words}: TPR*, accuracy, AUC, paper"] = " ".join(f"{value:.3f}" for value in printed(attack, settings))
        row[f"{words}, ours"] = ", ".join(_banded(done, attack, word) for word in _SHOWN)
    return {**row, **minutes(done)}


def _banded(done: Group, attack: str, word: str) -> str:
    mean, low, high = np.mean([one.result["found"][attack][word] for one in done], axis=0)
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"
