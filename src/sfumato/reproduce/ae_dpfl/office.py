"""AE-DPFL on Office-Caltech10, each domain in turn the server's and the three others the clients; and CIFAR-10 beside it."""

from __future__ import annotations

from typing import Any

from sfumato.reproduce.ae_dpfl import common
from sfumato.reproduce.ae_dpfl.digits import TAUGHT
from sfumato.reproduce.show import spread
from sfumato.reproduce.table import Cell, Group, Row, Settings, Table, Work, at, nothing, seeded

DOMAINS = {"amazon": 958, "caltech10": 1123, "dslr": 157, "webcam": 295}  # pictures; the appendix's Table 5
_NOISES = (0.0, 3.0, 8.0, 15.0)
_NOTES = (
    "Three clients cannot hide one of them: no noise that leaves a label would. So this table is about records, as the "
    "appendix's is: neighbours' votes with noise in units of single neighbours' votes, of which each client has k.",
    "Features: HOG of grey pictures of 64x64, or random convolutions. The appendix has AlexNet and ResNet-50, trained on ImageNet; "
    "without such weights the ceiling itself is low, and no statement about its networks follows.",
    "CIFAR-10: 20 clients of 700 pictures, the others' 6,000 public. Random features know little of photographs.",
    common.NOTES[-1],
)


def table(scale: str) -> Table:
    """The table at a scale."""
    cells: list[Cell] = []
    seeds = at(scale, 1, 3, 5)

    def add(server: str, method: str, own: Settings, work: Work = common.TRAIN) -> None:
        paper = {"method": method, "server": server}
        cells.extend(seeded(seeds, f"{server}, {method}", common.sized(scale, own), work, paper))

    knn = {**common.METHODS[common.KNN], "stddev_of": "neighbours", "features": "grey,hog:8"}
    for server, pictures in at(scale, [("amazon", 60)], list(DOMAINS.items()), list(DOMAINS.items())):
        names = {"data": f"office-caltech10-not-{server}", "public": f"office-caltech10-{server}", "clients": 3}
        base = {
            **names,
            "features": knn["features"],
            "split": at(scale, "iid", "natural", "natural"),
            "queries": int(0.7 * pictures),
        }
        add(server, "true labels of all queries", base, TAUGHT)
        for k in at(scale, (5,), (5, 20, 80), (5, 20, 80)):
            for noise in at(scale, (8.0,), _NOISES, _NOISES):
                add(server, f"k = {k}, noise {noise:g}", {**knn, **base, "k": k, "stddev": max(noise, 1e-6)})
    if scale != "quick":
        cifar = {"data": "cifar10", "public": "cifar10", "split": "iid", "features": "random-conv:128"}
        for epsilon in (2.74, 8.0):
            own = {**common.METHODS[common.KNN], **cifar, "clients": 20, "epsilon": epsilon, "queries": 500}
            add("CIFAR-10", f"k = 10, epsilon {epsilon:g}", {**own, "k": 10})
        add("CIFAR-10", "500 true labels", {**cifar, "clients": 0, "queries": 500}, TAUGHT)
    title = "AE-DPFL: Office-Caltech10, each domain in turn the server's; CIFAR-10"
    words = common.words(scale, "HOG in place of networks trained on ImageNet, 3 seeds.")
    return Table("ae-dpfl-office", title, common.PAPER, scale, cells, _row, nothing, words, _NOTES)


def _row(done: Group) -> Row:
    found: dict[str, Any] = common.row(done)
    labels = [100 * one.result["labels"] for one in done if "labels" in one.result]
    return {
        "server": done[0].cell.paper["server"],
        "votes": done[0].cell.paper["method"],
        "queries": str(done[0].cell.settings["queries"]),
        "epsilon, record": found["epsilon, record"],
        "labels right": spread(labels, "{:.1f}") if labels else "",
        "accuracy": found["accuracy"],
    }
