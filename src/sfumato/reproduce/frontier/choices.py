"""What each choice of `--auto` is worth: one at a time is made otherwise, on a data set that stands in for nobody's."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.planning.auto import Known, choose
from sfumato.report.words import bound
from sfumato.reproduce.frontier.ours import TRAIN
from sfumato.reproduce.frontier.side_by_side import ranged
from sfumato.reproduce.show import accuracies
from sfumato.reproduce.table import Cell, Group, Row, Table, at, groups, nothing, seeded

_CLIENTS, _RECORDS, _SECONDS = 500, 120, 7.0
_DATA: dict[str, Any] = {
    "recipe": "dp-fedavg", "delta": 1 / _CLIENTS, "name": "mnist", "clients": _CLIENTS, "records_per_client": _RECORDS,
    "split": "dirichlet:0.6", "public": "emnist-letters", "seconds": _SECONDS,
}  # fmt: skip
_AS_CHOSEN = "as --auto chooses"


def _rate(epsilon: float) -> float:
    """The server's learning rate that --auto chooses at an epsilon."""
    size = (_CLIENTS, _RECORDS, 10, (1, 28, 28))
    known = Known(False, *size, "classification", epsilon, 1 / _CLIENTS, "emnist-letters/train", _SECONDS)
    return float(next(choice.value for choice in choose(known) if choice.key == "options.server_lr"))


def _changes(epsilon: float) -> dict[str, dict[str, Any]]:
    """What is made otherwise: settings that --auto leaves as they are, and to which it fits the rest."""
    rate, other = _rate(epsilon), 8.0 if epsilon == 1.0 else 1.0
    return {
        _AS_CHOSEN: {},
        "no features: pixels": {"features": "pixels,unit-norm:3", "public": None},
        "no public basis: all wavelets": {"public": None},
        "pca:25": {"features": "scattering,group-norm,pca:25,unit-norm:3"},
        "pca:100": {"features": "scattering,group-norm,pca:100,unit-norm:3"},
        "pca:400": {"features": "scattering,group-norm,pca:400,unit-norm:3"},
        "features of norm 1": {"features": "scattering,group-norm,pca:200,unit-norm:1"},
        "cohorts of 25": {"options": {"sample": "poisson:0.05"}},
        "cohorts of 100": {"options": {"sample": "poisson:0.2"}},
        "no momentum": {"options": {"server_optimizer": "sgd", "server_lr": 10.0 * rate}},
        "no average": {"options": {"average": 0.0}},
        "15 rounds": {"rounds": 15},
        "30 rounds": {"rounds": 30},
        "a tenth of the clip": {"options": {"clip": 0.1}},
        "a tenth of the clip, the same server_lr": {"options": {"clip": 0.1, "server_lr": rate}},
        "half the server_lr": {"options": {"server_lr": rate / 2}},
        "twice the server_lr": {"options": {"server_lr": 2 * rate}},
        f"the server_lr of epsilon {other:g}": {"options": {"server_lr": _rate(other)}},
    }


def table(scale: str) -> Table:
    """MNIST shared out to 500 clients of 120, at a small and a larger epsilon."""
    cells: list[Cell] = []
    for epsilon in at(scale, (4.0,), (4.0,), (1.0, 4.0)):
        for what, change in _changes(epsilon).items():
            settings: dict[str, Any] = {**_DATA, "epsilon": epsilon, **change}
            if scale == "quick":
                settings |= {"name": "digits", "clients": 100, "records_per_client": 7, "public": None, "rounds": 3}
                settings.pop("features", None)
            settings = {name: value for name, value in settings.items() if value is not None}
            paper = {"what": what, "epsilon": epsilon}
            cells += seeded(at(scale, 1, 2, 5), f"epsilon {epsilon:g}, {what}", settings, TRAIN, paper)
    words = at(scale, "Quick: 3 rounds on digits. It says nothing about choices.", "2 seeds.", "5 seeds.")
    title = "What each choice of --auto is worth: MNIST, 500 clients of 120, Dirichlet 0.6, delta 1/500"
    notes = (
        "One choice is made otherwise; --auto fits the others to it. MNIST is the proxy on which the choices were found.",
    )
    return Table("frontier-choices", title, "No paper", scale, cells, _row, nothing, words, notes, _findings)


def _row(done: Group) -> Row:
    return {
        "epsilon": bound(max(one.result["epsilon"] for one in done)),
        "choice": done[0].cell.paper["what"],
        "accuracy": ranged(accuracies(done)),
        "seconds of training": ranged([one.result["seconds"] for one in done], "{:.1f}"),
    }


def _findings(done: Group) -> list[str]:
    """By how much each change is below what was chosen."""
    found, chosen = [], 0.0
    for group in groups(done):
        paper, mean = group[0].cell.paper, float(np.mean(accuracies(group)))
        chosen = mean if paper["what"] == _AS_CHOSEN else chosen
        if paper["what"] != _AS_CHOSEN:
            found.append(f"epsilon {paper['epsilon']:g}, {paper['what']}: {mean - chosen:+.2f} points.")
    return found
