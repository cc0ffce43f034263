"""DP-FedSAM, Figures 1, 3 and 4: losses around the models, norms of updates before the clip, and equation 18."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.report.curves import Curve, Plot
from sfumato.report.studies import Norms, Surface, Surfaces
from sfumato.reproduce.client_level import train
from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.landscape import Landscape
from sfumato.reproduce.table import MISSING, QUICK, Cell, Done, Picture, Row, Table

SHOWN = ("DP-FedAvg", "DP-FedSAM", "DP-FedSAM-top_k")
FREE = "FedAvg, no privacy"


def table(scale: str) -> Table:
    """The figures at a scale."""
    settings = {**common.base(scale), "norms": True, "landscape": 5 if scale == QUICK else 21}
    cells = [
        common.cell(name, {**settings, **common.METHODS[name]}, common.EPSILON, 0, {"method": name}) for name in SHOWN
    ]
    free = {**settings, "recipe": "fedavg", "clip": None, "norms": None}
    cells.append(Cell(FREE, free, 0, train, {"method": FREE}))
    return Table(
        "dp-fedsam-figure-3",
        f"DP-FedSAM, Figures 1, 3 and 4: landscapes and norms, Dirichlet 0.6, epsilon {common.EPSILON:g}",
        common.PAPER,
        scale,
        tuple(cells),
        _row,
        _pictures,
        common.words(scale, ", EMNIST Letters in place of CIFAR-10, and one seed"),
        (
            "Landscape: mean loss on 500 training records along two random directions, each filter as long as the model's own "
            "(Li et al. 2018). `rise`: how much higher the loss is, at the median, on the edge of that square.",
            "alpha is what the clip leaves of an update, min(1, clip / norm) (equation 18): its mean over the clients of a round, "
            "and the mean distance from it, averaged over rounds. Norms are those of whole updates, before any mask.",
            "All of it reads clients' rows or records without paying: not private, for study only.",
            *common.NOTES,
        ),
    )


def _row(done: Sequence[Done]) -> Row:
    result = done[0].result
    clips, around = result["clips"], Landscape(**result["landscape"])
    row = {"algorithm": done[0].cell.row, **common.measured(done), "rise": f"{around.sharpness:.2f}"}
    names = {"mean norm": "norm", "mean alpha": "mean", "distance of alpha": "spread"}
    numbers = {words: MISSING if clips is None else f"{np.mean(clips[name]):.3f}" for words, name in names.items()}
    clipped = MISSING if clips is None else f"{100 * clips['clipped']:.1f} %"
    row["epsilon"] = "no privacy" if done[0].cell.row == FREE else row["epsilon"]
    return {**row, **numbers, "clipped": clipped}


def _pictures(done: Sequence[Done]) -> list[Plot | Picture]:
    around = tuple(_surface(one) for one in done)
    pictures: list[Plot | Picture] = [
        Surfaces("landscapes", "Losses around the models", around),
        Surfaces("contours", "Contours of the loss around the models", around, flat=True),
    ]
    met = [one for one in done if one.result["clips"]]
    if met:
        clips = [one.result["clips"] for one in met]
        names = tuple(one.cell.row for one in met)
        edges, counts = (tuple(clip[word] for clip in clips) for word in ("edges", "counts"))
        pictures.append(Norms("norms", "Norms before the clip", names, edges, counts, clips[0]["clip"]))
        for word, y in (("norm", "Mean norm before the clip"), ("mean", "Mean alpha"), ("spread", "Distance of alpha")):
            pictures.append(Plot(f"clip-{word}", f"{y} by round", "Round", y, _lines(met, word)))
    return pictures


def _surface(one: Done) -> Surface:
    found = one.result["landscape"]
    return Surface(one.cell.row, tuple(found["steps"]), tuple(map(tuple, found["losses"])))


def _lines(done: Sequence[Done], word: str) -> tuple[Curve, ...]:
    curves = []
    for index, one in enumerate(done):
        values = tuple(one.result["clips"][word])
        curves.append(Curve(one.cell.row, index, tuple(float(x + 1) for x in range(len(values))), values))
    return tuple(curves)
