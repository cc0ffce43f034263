"""UDP-FL, Figure 5: wind power of seven farms, with FedAvg and SCAFFOLD; beside them what a forecast without a model has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from sfumato.data.wind import HOURS
from sfumato.objective import evaluate, regression
from sfumato.report.curves import Curve, Plot
from sfumato.reproduce.show import by_round, having, minutes, values
from sfumato.reproduce.table import QUICK, Cell, Done, Group, Row, Settings, Table, Work, at, groups
from sfumato.reproduce.training import dataset_of
from sfumato.reproduce.udp_fl import common

WIND: dict[str, Any] = common.BASE | {
    "data": "gefcom2012-wind", "split": "natural", "clients": 7, "records": 914, "model": "cnn-wind", "rounds": 60, "steps": 4,
    "lr": 0.3, "plain_lr": 0.3, "clip": 0.1, "norm": 5.0,
}  # fmt: skip
L1_CLIP = 0.4
_QUICK: dict[str, Any] = {"rounds": 1, "steps": 1, "evaluate_every": 1}
_NAIVE = {
    "climatology": "the mean power of all farms in training",
    "persistence": "the power at the hour of the forecast",
}
_METHODS = {name: own for name, own in common.METHODS.items() if name != "Laplace, L2 clip"}
_SCALED = "60 rounds of 4 steps, a CNN of 1,889 parameters, one seed."
_NOTES = (
    "NbAFL is in the table and not in the pictures: its errors are up to a thousand times the others'.",
    "Mean squared error of the power (0 to 1) of the next 48 hours on October to December 2010, all farms together; the "
    "paper plots something between 0.6 and 0.7 whose unit it does not print.",
    "A record is one forecast window. An hour is in up to five windows, so these epsilons hide a window and not an hour.",
    "The paper names 10 clients for 7 farms, and the clip 10, which is above every gradient here: `as printed`, with "
    "learning rate 0.01.",
    "SCAFFOLD by its option II: its control variates are functions of messages that are paid for, and cost nothing.",
)


def naive(settings: Settings, seed: int) -> dict[str, Any]:
    """The error of a forecast that nobody trained."""
    dataset = dataset_of(settings["data"], 0)
    mean = float(dataset.pool.y.mean())

    def constant(x: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x), HOURS), mean)

    def last(x: torch.Tensor) -> torch.Tensor:
        return x[:, -1]  # the channel of the power when the forecast was issued

    found = evaluate(constant if settings["forecast"] == "climatology" else last, dataset.test.records, regression())
    return {"mse": found["mse"], "really": None}


NAIVE = Work("sfumato.reproduce.udp_fl.naive", naive)


def table(scale: str) -> Table:
    """The figure at a scale."""
    settings = {**WIND, **at(scale, _QUICK, {}, {"rounds": 150})}
    cells: list[Cell] = []
    epsilons = at(scale, (8.0,), common.EPSILONS, common.EPSILONS)
    for aggregate, (method, own) in product(("FedAvg", "SCAFFOLD"), {**_METHODS, common.NONE: common.FREE}.items()):
        if (method == "NbAFL" and aggregate == "SCAFFOLD") or (scale == QUICK and method.startswith("Laplace")):
            continue
        for epsilon in epsilons if method != common.NONE else (None,):
            chosen = {**settings, **own, "epsilon": epsilon, "scaffold": aggregate == "SCAFFOLD"}
            if chosen.get("law") in ("laplace", "staircase"):
                chosen["clip"] = L1_CLIP
            cells += common.cells(scale, f"{aggregate}, {method}", chosen, {"method": method, "aggregation": aggregate})
    printed = {
        **settings,
        **common.METHODS[common.GAUSSIAN],
        "epsilon": 8.0,
        "scaffold": True,
        "lr": 0.01,
        "clip": 10.0,
    }
    cells += common.cells(scale, "SCAFFOLD, as printed", printed, {"method": "as printed", "aggregation": "SCAFFOLD"})
    for name, words in _NAIVE.items():
        facts = {"data": WIND["data"], "forecast": name, "epsilon": None, "accounting": common.NOTHING}
        cells.append(Cell(f"{name}: {words}", facts, 0, NAIVE, {"method": name, "aggregation": "nobody"}))
    title = "UDP-FL, Figure 5: wind power, mean squared error by epsilon"
    scaled = at(
        scale,
        "Quick: one round of one step, epsilon 8. It shows that everything runs, and says nothing about the paper.",
        _SCALED,
        "",
    )
    return Table(
        "udp-fl-figure-5",
        title,
        common.PAPER,
        scale,
        cells,
        partial(_row, epsilons),
        _plots,
        scaled,
        (*_NOTES, *common.NOTES[:3]),
    )


def _row(epsilons: Sequence[float], done: Group) -> Row:
    settings, paper = done[0].cell.settings, done[0].cell.paper
    head = {"aggregate": paper["aggregation"], "noise": paper["method"], "accounting": settings["accounting"]}
    return {**head, **common.by_epsilon(done, epsilons, "mse"), **minutes(done)}


def _plots(done: Group) -> list[Plot]:
    trained = [one for one in done if "curve" in one.result]
    found = []
    for aggregate in values(trained, "aggregation"):
        some = having(trained, aggregation=aggregate)
        curves = [
            _by_epsilon(method, index, having(some, method=method))
            for index, method in enumerate(values(some, "method"))
            if method not in (common.NONE, "as printed", "NbAFL")  # whose errors would hide the others'
        ]
        levels = [one for one in done if one.cell.paper["method"] in (common.NONE, *_NAIVE)]
        for one in (
            one for one in levels if one.cell.paper["aggregation"] in (aggregate, "nobody") and one.cell.seed == 0
        ):
            flat = (one.result["mse"],) * 2
            curves.append(
                Curve(one.cell.paper["method"], len(curves), (min(common.EPSILONS), max(common.EPSILONS)), flat, True)
            )
        title = f"Mean squared error by epsilon, {aggregate}"
        found.append(Plot(f"mse-{aggregate.lower()}", title, common.CLAIMED, "Mean squared error", tuple(curves)))
    lines = {
        group[0].cell.row: group
        for group in groups([one for one in trained if one.cell.settings["epsilon"] in (8.0, None)])
    }
    return found + by_round(
        "mse-by-round", "Training loss on test data by round, epsilon 8", "Mean squared error", lines, 1
    )


def _by_epsilon(method: str, index: int, done: list[Done]) -> Curve:
    epsilons = values(done, "epsilon")
    ys = tuple(float(np.mean([one.result["mse"] for one in having(done, epsilon=epsilon)])) for epsilon in epsilons)
    return Curve(method, index, tuple(epsilons), ys)
