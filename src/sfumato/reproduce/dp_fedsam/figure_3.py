"""DP-FedSAM, Figures 1, 3 and 4: losses around the models, norms of updates before the clip, and equation 18."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sfumato.report.curves import Curve, Plot
from sfumato.report.studies import Landscape, Norms, Surfaces
from sfumato.report.words import MISSING
from sfumato.reproduce.client_level import TRAIN
from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.table import Cell, Group, Picture, Row, Table, at

SHOWN = ("DP-FedAvg", "DP-FedSAM", "DP-FedSAM-top_k")
FREE = "FedAvg, no privacy"
_NOTES = (
    "Landscape: mean loss on 500 training records along two random directions, each filter as long as the model's own "
    "(Li et al. 2018). `rise`: how much higher the loss is, at the median, on the edge of that square.",
    "alpha is what the clip leaves of an update, min(1, clip / norm) (equation 18): its mean over the clients of a round, "
    "and the mean distance from it, averaged over rounds. Norms are those of whole updates, before any mask.",
    "All of it reads clients' rows or records without paying: not private, for study only.",
)


def table(scale: str) -> Table:
    """The figures at a scale."""
    settings = common.base(scale) | {"norms": True, "landscape": at(scale, 5, 21, 21)}
    cells: list[Cell] = []
    for method in SHOWN:
        cells += common.cells(1, method, settings | common.METHODS[method], {"method": method})
    free = settings | {"recipe": "fedavg", "clip": None, "norms": None}
    cells.append(Cell(FREE, free, 0, TRAIN, {"method": FREE}))
    title = f"DP-FedSAM, Figures 1, 3 and 4: landscapes and norms, Dirichlet 0.6, epsilon {common.EPSILON:g}"
    more = ", EMNIST Letters in place of CIFAR-10, and one seed"
    made = common.table("dp-fedsam-figure-3", title, scale, cells, _row, (), *_NOTES, more=more)
    return replace(made, plots=_pictures)


def _row(done: Group) -> Row:
    result, free = done[0].result, done[0].cell.row == FREE
    clips, around = result["clips"], Landscape(**result["landscape"])
    row = {"algorithm": done[0].cell.row, **common.measured(done), "rise": f"{around.sharpness:.2f}"}
    for words, name in (("mean norm", "norm"), ("mean alpha", "mean"), ("distance of alpha", "spread")):
        row[words] = MISSING if clips is None else f"{np.mean(clips[name]):.3f}"
    row["clipped"] = MISSING if clips is None else f"{100 * clips['clipped']:.1f} %"
    return row | ({"epsilon": "no privacy"} if free else {})


def _pictures(done: Group) -> list[Picture]:
    around = {one.cell.row: Landscape(**one.result["landscape"]) for one in done}
    pictures: list[Picture] = [
        Surfaces("landscapes", "Losses around the models", around),
        Surfaces("contours", "Contours of the loss around the models", around, flat=True),
    ]
    met = {one.cell.row: one.result["clips"] for one in done if one.result["clips"]}
    if met:
        edges, counts = (tuple(clips[word] for clips in met.values()) for word in ("edges", "counts"))
        clip = next(iter(met.values()))["clip"]
        pictures.append(Norms("norms", "Norms before the clip", tuple(met), edges, counts, clip))
        for word, y in (("norm", "Mean norm before the clip"), ("mean", "Mean alpha"), ("spread", "Distance of alpha")):
            lines = ((name, index, clips[word]) for index, (name, clips) in enumerate(met.items()))
            curves = [Curve(name, index, tuple(range(1, len(ys) + 1)), tuple(ys)) for name, index, ys in lines]
            pictures.append(Plot(f"clip-{word}", f"{y} by round", "Round", y, tuple(curves)))
    return pictures
