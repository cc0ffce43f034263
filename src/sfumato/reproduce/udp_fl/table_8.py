"""UDP-FL, Table 8: gender from the inner layer of a model of age groups, by epsilon, beside what the paper prints."""

from __future__ import annotations

from typing import Any

import torch

from sfumato.audit.attributes import Hidden, flat, guessed, penultimate, scored
from sfumato.audit.victims import drawn_records
from sfumato.data.population import Records
from sfumato.key import Key
from sfumato.report.curves import Plot
from sfumato.reproduce.table import Group, Row, Settings, Table, Work, at
from sfumato.reproduce.training import Start, dataset_of, threads_of
from sfumato.reproduce.udp_fl import attacked, common

# accuracy and F1 at epsilon 2, 4, 6 and 8
PRINTED = {
    "gaussian": ((0.8392, 0.8239), (0.8497, 0.8408), (0.8519, 0.8439), (0.8615, 0.8544)),
    "laplace": ((0.8297, 0.7987), (0.8285, 0.8248), (0.8390, 0.8096), (0.8320, 0.8169)),
    "staircase": ((0.8267, 0.8124), (0.8383, 0.8260), (0.8322, 0.8131), (0.8317, 0.8174)),
}
FREE = (0.86, 0.85)
PIXELS, UNTRAINED, COMMONEST = "raw pixels (no model)", "untrained model", "always the commonest"
FACES = common.CIFAR | {"data": "utkface", "clients": 2, "records": 1500, "rounds": 100, "networks": 3}
_SCALED = (
    "3,000 faces of 32x32 shared out to 2 clients and 1,000 public ones, in place of some 20,000 and 10 clients; a CNN of 122,502 "
    "parameters; 100 rounds in place of 150."
)
_NOTES = (
    *attacked.NOTES,
    "Ours: a network of two layers learns gender from the penultimate layer of a model of six age groups, on two thirds of the "
    "public faces, and is asked about the clients' faces (members) and about the last third (others), which nobody trained on. "
    "Means over 3 such networks; bands are exact binomial, over the faces asked about.",
    "Faces show gender to anybody: only what a trained model adds to raw pixels, or has for members and not for others, could be a "
    "leak of training. The paper names neither the model nor its task, and prints no such baseline.",
    "The DP-SGD row of the paper is at epsilon 8 above the one without privacy.",
)


def inferred(settings: Settings, seed: int) -> dict[str, Any]:
    """Train a model, unless the guess needs none, and infer the hidden attribute of its members and of others."""
    with threads_of(settings):
        return _inferred(settings, seed)


INFERRED = Work("sfumato.reproduce.udp_fl.inferred", inferred)


def hidden_of(name: str) -> Hidden:
    """Gender for faces; digits, on which the table only shows that it runs, are odd or not."""
    if name == "utkface":
        return Hidden.load("utkface-gender", None)
    dataset = dataset_of(name, 0)
    known = Hidden.by_record(Records(dataset.train.x, dataset.train.y % 2))
    return Hidden("odd", known, Records(dataset.test.records.x, dataset.test.records.y % 2))


def _inferred(settings: Settings, seed: int) -> dict[str, Any]:
    guess, key = settings.get("guess"), Key.from_seed(seed).child("attributes")
    if guess is None:
        start, module, found = attacked.trained(settings, seed)
    else:
        start = Start.of(settings, seed, dataset_of(settings["data"], 0), settings["records"])
        module, found = start.module, {"accuracy": None, "epsilon": None, "really": None}
    hidden = hidden_of(settings["data"])
    members = hidden.of(
        drawn_records(start.population, settings["clients"] * settings["records"], key.child("victims"))
    )
    order = torch.from_numpy(key.child("auxiliary").permutations(1, hidden.test.count)[0])
    others, auxiliary = (
        Records(hidden.test.x[rows], hidden.test.y[rows]) for rows in order.tensor_split([len(order) // 3])
    )
    groups, inner = {"members": members, "others": others}, flat if guess == PIXELS else penultimate(module)
    networks = range(settings["networks"])
    if guess == COMMONEST:
        commonest = int(auxiliary.y.mode().values)
        answers = [{name: torch.full_like(records.y, commonest) for name, records in groups.items()}]
    else:
        answers = [guessed(inner, auxiliary, groups, key.child("network", number=number)) for number in networks]
    return {**found, "groups": {name: _scores(answers, name, records.y) for name, records in groups.items()}}


def _scores(answers: list[dict[str, torch.Tensor]], name: str, truth: torch.Tensor) -> dict[str, list[float]]:
    """Means over networks; the band of the accuracy is the mean of the exact ones."""
    scores = [scored(one[name], truth) for one in answers]
    accuracy = torch.tensor([[found["accuracy"], low, high] for found, (low, high) in scores], dtype=torch.float64)
    f1 = sum(found["f1"] for found, _ in scores) / len(scores)
    return {"accuracy": accuracy.mean(0).tolist(), "f1": [f1, f1, f1]}


def table(scale: str) -> Table:
    """The table at a scale."""
    quick = common.QUICK | {"networks": 1, "records": 300}
    settings = {**FACES, **at(scale, quick, {}, {"rounds": 150, "clients": 10, "records": 300})}
    cells = attacked.cells(scale, settings, INFERRED, PRINTED, FREE)
    for guess in (PIXELS, UNTRAINED, COMMONEST):
        cells += attacked.cell(scale, guess, {**settings, **common.FREE, "guess": guess}, INFERRED)
    full = "4,000 faces as they are at hand, a CNN of 122,502 parameters."
    words = at(scale, common.words(scale, ""), f"{_SCALED} The paper's clients and rounds: --full.", full)
    title = "UDP-FL, Table 8: attribute inference"
    return Table("udp-fl-table-8", title, common.PAPER, scale, cells, _row, _plots, words, _NOTES)


def _row(done: Group) -> Row:
    def ours(done: Group) -> Row:
        own = done[0].result["accuracy"]
        return {
            "age accuracy": "" if own is None else f"{sum(one.result['accuracy'] for one in done) / len(done):.3f}",
            **{
                f"{word}, {group}": attacked.shown(attacked.over(done, "groups", group, word))
                for group in ("members", "others")
                for word in ("accuracy", "f1")
            },
        }

    return attacked.row(done, "accuracy F1", ours)


def _plots(done: Group) -> list[Plot]:
    def value(own: Group) -> list[float]:
        return attacked.over(own, "groups", "members", "accuracy")

    return attacked.plot("attribute-accuracy", "Accuracy of the hidden attribute, members", "Accuracy", done, value)
