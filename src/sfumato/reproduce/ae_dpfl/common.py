"""What the tables of AE-DPFL have in common: clients of one domain, public records of another, and one run at an epsilon."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sfumato import recipes
from sfumato.account import accountant
from sfumato.account.event import Unit
from sfumato.calibration import calibrate
from sfumato.data.load import as_public, build_population, hold_out, load
from sfumato.data.population import PublicData, Records
from sfumato.data.record_map import unchanged
from sfumato.data.sets import Dataset
from sfumato.engine.plan import Plan
from sfumato.engine.simulate import simulate
from sfumato.features import Fit, parse_features
from sfumato.key import Key
from sfumato.models import build
from sfumato.objective import classification, evaluate
from sfumato.report.words import bound
from sfumato.reproduce.show import accuracies, spread
from sfumato.reproduce.table import Group, Row, Settings, Work, at
from sfumato.reproduce.training import threads_of
from sfumato.update import Layout
from sfumato.voting.labels import Argmax
from sfumato.voting.neighbours import Neighbours
from sfumato.voting.student import Student
from sfumato.voting.votes import Votes

PAPER = (
    "Zhu, Yu, Tsai, Pittaluga, Faraki, Chandraker and Wang 2020, Voting-based Approaches for Differentially Private Federated \
Learning (AE-DPFL), appendix"
)
DELTA, RECORD_DELTA = 1e-3, 1e-5
KNN, PATE, FEDAVG = "Private-kNN-FL", "PATE-FL", "DP-FedAvg"
BASE: dict[str, Any] = {
    "data": "mnist", "public": "usps", "features": "random-conv", "clients": 100, "split": "iid", "model": "logistic",
    "queries": 500, "rounds": 1, "stddev": 25.0, "epsilon": None, "threads": 1,
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    KNN: {"recipe": "knn-fl", "k": 3},
    PATE: {"recipe": "pate-fl"},
    FEDAVG: {
        "recipe": "dp-fedavg",
        "sample": "everyone",
        "rounds": 60,
        "lr": 8.0,
        "clip": 3.0,
        "epochs": 1,
        "batch_size": 60,
    },
}
QUICK: dict[str, Any] = {
    "data": "digits",
    "public": "digits",
    "features": "pixels",
    "clients": 8,
    "queries": 60,
    "stddev": 2.0,
}
NOTES = (
    "Clients have records of one domain, and the server unlabelled ones of another: 70 % of these are queries, 30 % the test. "
    "Every epsilon is exact (a Gaussian event). Clients are added or removed, at delta 1e-3; a record is swapped, at delta 1e-5. "
    "Both come from the same run.",
    "Features: MNIST is cropped to its box and resized to USPS's 16x16; 64 random convolutions, fixed, of no data. The "
    "paper used AlexNet, trained on ImageNet. The student is a ridge regression on the released labels, weighted by their "
    "noisy margin, which is free.",
    "The appendix prints no accuracy and no epsilon, so there is nothing to set beside ours.",
)


@lru_cache(maxsize=4)
def mapped(name: str, shape: tuple[int, ...] | None, margin: int, words: str) -> Dataset:
    """A data set whose records are features already; each record is mapped by itself."""
    found, features = load(name).unscaled, parse_features(words)
    fit = Fit(shape, margin, found.margin) if shape is not None else Fit(found.input_shape, found.margin, found.margin)

    def vectors(x: Tensor) -> Tensor:
        return torch.cat([features(fit(part)) for part in torch.split(x, 500)])

    pool = Records(vectors(found.scaling(found.pool.x)), found.pool.y)
    test = PublicData(found.test.name, Records(vectors(found.test.records.x), found.test.records.y))
    return replace(found, pool=pool, test=test, scaling=unchanged)


@lru_cache(maxsize=8)
def _shape(name: str) -> tuple[tuple[int, ...], int]:
    found = load(name)
    return found.input_shape, found.margin


def domains(settings: Settings, seed: int) -> tuple[Dataset, PublicData, PublicData]:
    """What clients share out, the records that they are asked about, and those that the student is tested on."""
    shape, margin = _shape(settings["public"])
    ours, root = mapped(settings["data"], shape, margin, settings["features"]), Key.from_seed(seed)
    if settings["public"] != settings["data"]:
        return ours, *as_public(mapped(settings["public"], None, 0, settings["features"]), root)
    parted = hold_out(ours, ours.pool.count * 3 // 10, root, "public")  # set aside before there are clients
    assert parted.validation is not None, "it was set aside"
    return parted, parted.validation, parted.test


def train(settings: Settings, seed: int) -> dict[str, Any]:
    """One run: accuracy of the student or the global model on the server's domain, what it costs, and how good the labels were."""
    with threads_of(settings):
        return _train(settings, seed)


TRAIN = Work("sfumato.reproduce.ae_dpfl.train", train)


def _train(settings: Settings, seed: int) -> dict[str, Any]:
    ours, public, test = domains(settings, seed)
    classes, root = ours.classes, Key.from_seed(seed)
    people, objective = (
        build_population(ours, settings["clients"], settings["split"], root.child("split")),
        classification(classes),
    )
    module = build(settings["model"], tuple(test.records.x.shape[1:]), classes, root.child("model"))
    known = recipes.find(settings["recipe"]).options
    options = {word: value for word, value in settings.items() if word in known and value is not None}
    votes = "classes" in known
    round = recipes.build(
        settings["recipe"], people.size, options | ({"classes": classes} if votes else {}), public if votes else None
    )
    if settings["epsilon"] is not None:
        length = round.local.message_length(Layout.of(module))
        facts = {"rounds": settings["rounds"], "population": people.size, "dimension": length}
        round = calibrate(round, epsilon=settings["epsilon"], delta=DELTA, **facts)
    if "seen" in settings:  # neighbours look at features of their own, and the student at the records as they are
        assert isinstance(round.local, Votes) and isinstance(round.local.voter, Neighbours)
        voter = replace(round.local.voter, features=parse_features(settings["seen"]))
        round = replace(round, local=replace(round.local, voter=voter))
    if not settings.get("weigh", True):
        assert isinstance(round.optimizer, Student)
        round = replace(round, optimizer=replace(round.optimizer, labels=Argmax(weigh=False)))
    run = simulate(round, people, module, objective, rounds=settings["rounds"], seed=seed, plan=Plan("loop", 1, 1))
    *_, last = run
    price, units = accountant("auto"), run.derivation.units
    costs = {
        str(unit): price.epsilon(units[unit].after(settings["rounds"]), delta) if unit in units else None
        for unit, delta in ((Unit.CLIENT, DELTA), (Unit.RECORD, RECORD_DELTA))
    }
    found = {"accuracy": evaluate(last.module, test.records, objective)["accuracy"], "epsilon": costs}
    if isinstance(round.optimizer, Student):
        numbers, labels, _ = round.optimizer.labelled(last.state, run.derivation.primary.stddev)
        found["labels"] = (labels == public.records.y[numbers]).double().mean().item()
    return found


def sized(scale: str, settings: Settings) -> dict[str, Any]:
    """The settings at a scale."""
    return {**BASE, **settings, **at(scale, QUICK, {}, {})}


def row(done: Group) -> Row:
    """Accuracy and what it costs; how many of the released labels are right."""
    settings, result = done[0].cell.settings, done[0].result
    costs, labels = result.get("epsilon", {}), [100 * one.result["labels"] for one in done if "labels" in one.result]
    return {
        "clients": str(settings["clients"] or ""),
        "method": done[0].cell.paper["method"],
        "queries": str(settings["queries"] * settings["rounds"]) if settings.get("recipe", "").endswith("-fl") else "",
        "noise": ("none" if settings["stddev"] < 1e-3 else f"{settings['stddev']:g}")
        if labels and settings["epsilon"] is None
        else "",
        "epsilon, client": _cost(costs.get("client")),
        "epsilon, record": _cost(costs.get("record")),
        "labels right": spread(labels, "{:.1f}") if labels else "",
        "accuracy": spread(accuracies(done), "{:.2f}"),
    }


def _cost(found: float | None) -> str:
    return "" if found is None else "none" if found > 1e6 else bound(found)


def words(scale: str, default: str) -> str:
    """How the table differs from the paper's setting."""
    return at(scale, "Quick: scikit-learn's digits on both sides; it shows that everything runs.", default, default)
