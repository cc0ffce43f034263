"""UDP-FL, Table 9 (Appendix E): pictures from a model's answers by a trained network, by epsilon, beside what the paper prints."""

from __future__ import annotations

import copy
from typing import Any

import torch

from sfumato.audit.attack import outputs_of
from sfumato.audit.picture_measures import Pixels, each
from sfumato.audit.reconstruct import Network, answers_of, guesses_without_a_model, parted
from sfumato.audit.victims import drawn_records
from sfumato.key import Key
from sfumato.report.curves import Plot
from sfumato.reproduce.table import Group, Row, Settings, Table, Work, at
from sfumato.reproduce.training import Start, dataset_of, threads_of
from sfumato.reproduce.udp_fl import attacked, common

# MSE and MAE at epsilon 2, 4, 6 and 8
PRINTED = {
    "gaussian": ((2.40, 1.26), (2.35, 1.24), (2.30, 1.22), (2.25, 1.20)),
    "laplace": ((2.42, 1.27), (2.38, 1.25), (2.33, 1.23), (2.28, 1.21)),
    "staircase": ((2.44, 1.28), (2.40, 1.26), (2.35, 1.24), (2.30, 1.22)),
}
FREE = (1.23, 0.65)
GREY, MEAN, CLASS, UNTRAINED = (
    "grey picture (no model)", "mean public picture (no model)", "mean of the class (no model)", "untrained model",
)  # fmt: skip
_WORDS = ("mse", "mae")
BASE = common.CIFAR | {"clients": 5, "rounds": 20, "public": 0, "shown": 2000, "asked": 500, "epochs": 10}
_SCALED = (
    "10,000 training pictures with 5 clients in place of 50,000 with 10, a CNN of 122,570 parameters in place of ResNet-18, 20 "
    "rounds in place of 150; the network learns from 2,000 pictures and is asked about 500 of clients and 500 of nobody."
)
_NOTES = (
    *attacked.NOTES,
    "Ours: the network turns the model's answer (ten log-probabilities) into a picture. It learns on test pictures that it is not "
    "asked about, so that its picture is close to the true one and the model gives it the same answer. Members are "
    "clients' pictures, others are pictures that nobody trained on; bands are over pictures.",
    "MSE and MAE are in the units of pictures scaled to unit variance; the paper does not say which are its own. If they are the "
    "same, a grey picture, with an MSE of about 1 and an MAE of about 0.8, is better than each of its private rows, and by its "
    "MSE than the one without privacy too: then they do not show that noise protects.",
)


def rebuilt(settings: Settings, seed: int) -> dict[str, Any]:
    """Train a model and a network that turns its answers into pictures; errors on members and others."""
    with threads_of(settings):
        return _rebuilt(settings, seed)


REBUILT = Work("sfumato.reproduce.udp_fl.rebuilt", rebuilt)


def _rebuilt(settings: Settings, seed: int) -> dict[str, Any]:
    guess, key, dataset = settings.get("guess"), Key.from_seed(seed).child("network"), dataset_of(settings["data"], 0)
    found: dict[str, Any] = {"accuracy": None, "epsilon": None, "really": None}
    if guess is None:
        start, module, found = attacked.trained(settings, seed)
    else:
        start = Start.of(settings, seed, dataset, settings["records"])
        module = start.module
    target, pixels = copy.deepcopy(module).eval().requires_grad_(False), Pixels.of(dataset.test.records.x)
    members = drawn_records(start.population, settings["asked"], key.child("victims"))
    public, others = parted(dataset.test.records, settings["shown"], settings["asked"], key.child("public"))
    groups = {"members": members, "others": others}
    if guess in (GREY, MEAN, CLASS):
        wanted = {MEAN: "mean picture", CLASS: "mean picture of the class"}
        made = {
            name: torch.zeros_like(one.x) if guess == GREY else guesses_without_a_model(public, one)[wanted[guess]]
            for name, one in groups.items()
        }
    else:
        decoder = Network(settings["epochs"]).trained(target, public.x, key.child("decoder"))
        made = {name: pixels.within(outputs_of(decoder, answers_of(target, one.x))) for name, one in groups.items()}
    errors = {name: each(made[name], one.x, pixels) for name, one in groups.items()}
    return {
        **found,
        "groups": {name: {word: attacked.band(one[word].tolist()) for word in _WORDS} for name, one in errors.items()},
    }


def table(scale: str) -> Table:
    """The table at a scale."""
    quick = common.QUICK | {"shown": 100, "asked": 20, "epochs": 2}
    full = {"model": "resnet-18", "clients": 10, "rounds": 150, "shown": 5000, "epochs": 30}
    settings = {**BASE, **at(scale, quick, {}, full)}
    cells = attacked.cells(scale, settings, REBUILT, PRINTED, FREE)
    for guess in (GREY, MEAN, CLASS, UNTRAINED):
        cells += attacked.cell(scale, guess, {**settings, **common.FREE, "guess": guess}, REBUILT)
    title, words = "UDP-FL, Table 9: a reconstruction network", common.words(scale, _SCALED)
    return Table("udp-fl-table-9", title, common.PAPER, scale, cells, _row, _plots, words, _NOTES)


def _row(done: Group) -> Row:
    def ours(done: Group) -> Row:
        own = done[0].result["accuracy"]
        return {
            "accuracy": "" if own is None else f"{100 * sum(one.result['accuracy'] for one in done) / len(done):.1f}",
            **{
                f"{word.upper()}, {group}": attacked.shown(attacked.over(done, "groups", group, word))
                for group in ("members", "others")
                for word in _WORDS
            },
        }

    return attacked.row(done, "MSE MAE", ours)


def _plots(done: Group) -> list[Plot]:
    def value(own: Group) -> list[float]:
        return attacked.over(own, "groups", "members", "mse")

    return attacked.plot("reconstruction-mse", "Error of pictures rebuilt from answers, members", "MSE", done, value)
