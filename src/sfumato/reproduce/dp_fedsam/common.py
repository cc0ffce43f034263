"""What the tables of DP-FedSAM have in common: the seven algorithms at one epsilon on EMNIST Letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from sfumato.report.curves import Plot
from sfumato.report.words import bound
from sfumato.reproduce.client_level import TRAIN, noise_for
from sfumato.reproduce.show import accuracies, by_round, having, minutes, spread, values
from sfumato.reproduce.table import Cell, Group, Row, RowOf, Settings, Table, at, groups, nothing, scaled, seeded

PAPER = (
    "Shi, Wei, Shen et al. 2023, Towards the Flatter Landscape and Better Generalization in Federated Learning under \
Client-level Differential Privacy (DP-FedSAM)"
)
EPSILON, DELTA, KEEP, SPLIT = 8.0, 1 / 500, 0.4, "dirichlet:0.6"
SAM: dict[str, Any] = {"radius": 0.5, "adaptive": True}
PUBLISHED = "DP-FedSAM-top_k, as published"
METHODS: dict[str, dict[str, Any]] = {
    "DP-FedAvg": {"recipe": "dp-fedavg"},
    "Fed-SMP-rand_k": {"recipe": "fed-smp", "mask": "random", "keep": KEEP},
    "Fed-SMP-top_k": {"recipe": "fed-smp", "mask": "public", "keep": KEEP},
    "DP-FedAvg-blur": {"recipe": "dp-fedavg-blur", "penalty": 1.0, "keep": 1.0},
    "DP-FedAvg-blurs": {"recipe": "dp-fedavg-blur", "penalty": 1.0, "keep": KEEP},
    "DP-FedSAM": {"recipe": "dp-fedsam", **SAM},
    "DP-FedSAM-top_k": {"recipe": "dp-fedsam-top-k", "mask": "dense", "keep": KEEP, **SAM},
    PUBLISHED: {"recipe": "dp-fedsam-top-k", "mask": "published", "keep": KEEP, **SAM},
}
EMNIST: dict[str, Any] = {
    "data": "emnist-letters", "split": SPLIT, "clients": 500, "records": 124, "held_out": 240, "curve_on": "test",
    "model": "cnn-emnist", "sample": "poisson:0.1", "clip": 0.2, "lr": 0.1, "momentum": 0.5, "lr_decay": 0.998, "epochs": 1,
    "batch_size": 32, "weight_decay": 5e-4, "rounds": 200, "delta": DELTA, "evaluate_every": 10, "gap": True,
    "plan": ["loop", 1, 1],
}  # fmt: skip
SMALL: dict[str, Any] = {
    "records": 120, "model": "cnn-mnist", "sample": "poisson:0.05", "clip": 0.4, "rounds": 60, "evaluate_every": 15,
}  # fmt: skip
SMALL_WORDS = (
    "62,400 letters in 26 classes in place of the paper's 88,800, a CNN of 111,000 parameters (3x3 filters, 128 units) in place of "
    "1.7 million, rate 0.05 (25 clients a round) in place of 0.1, 60 rounds in place of 200 and, as they are few, a clip of 0.4 in "
    "place of 0.2"
)
QUICK: dict[str, Any] = {
    "data": "digits", "split": "iid", "clients": 40, "records": 20, "held_out": 200, "model": "logistic", "rounds": 2,
    "sample": "poisson:0.5", "evaluate_every": 1, "delta": 0.01, "plan": ["stacked", 10, 1],
    "threads": 1,
}  # fmt: skip
NOTES = (
    "All algorithms get the noise that is proven enough for the same epsilon under Poisson sampling, with the sum divided by the "
    "expected cohort (add or remove a client, against anyone who sees the released models, but not who took part). The paper draws "
    "cohorts of fixed size and counts them as Poisson: as written, its default setting costs 37 to 49, not 8.5 to 10.8.",
    f"{PUBLISHED}: each client drops coordinates after adding its share of the noise. Its claim is false; it is run with the same "
    "noise and proves nothing. DP-FedSAM-top_k is the sound variant: sparse updates, then the clip, then noise everywhere.",
    "Train: accuracy of the global model on 5,000 training records (not private). The paper's values of 99 percent beside 82 on "
    "test data are those of local models on their own data, it seems; they are not comparable.",
    "The paper reports the best accuracy of a run, chosen on test data; ours is that of the last round.",
    "Fed-SMP-top_k takes its mask from 240 training records that were set aside as public. BLUR and LUS are cited and not defined "
    "in the paper: here a penalty of strength 1 on updates longer than the clip, and each client's largest coordinates per layer.",
    "The settings are those released for EMNIST: one local epoch, decay 0.998, weight decay 5e-4, adaptive SAM with radius 0.5. "
    "They were not searched for any algorithm.",
)
CIFAR_NOTE = "The paper's values are CIFAR-10's with ResNet-18: compare orders, not numbers."


def base(scale: str) -> dict[str, Any]:
    """The settings of a scale, without an algorithm."""
    return EMNIST | at(scale, QUICK, SMALL, {})


def cells(seeds: int, row: str, settings: Settings, paper: Settings, epsilon: float = EPSILON) -> list[Cell]:
    """The cells of a row, with the noise that is proven enough for an epsilon; the unproven algorithm gets the same noise."""
    rule = (settings["sample"], settings["clients"], settings["rounds"], epsilon, settings["delta"])
    return seeded(seeds, row, {**settings, "noise_multiplier": noise_for(*rule)}, TRAIN, paper)


@dataclass(frozen=True)
class Panel:
    """Cells to compare, by the facts that they share: their order in words, what else they say, and a picture if it has a name."""

    words: str
    facts: Settings
    picture: str = ""
    title: str = ""
    more: Callable[[Group], Sequence[str]] = nothing

    def plots(self, done: Group) -> list[Plot]:
        """Test accuracy by round: a line with a band for each row."""
        lines = {group[0].cell.paper["method"]: group for group in groups(having(done, **self.facts))}
        return by_round(self.picture, self.title, "Test accuracy", lines) if self.picture else []

    def findings(self, done: Group) -> list[str]:
        """The order, then what else is to be said."""
        chosen = having(done, **self.facts)
        return [f"{self.words}: {order(chosen)}.", *self.more(chosen)] if chosen else []


def table(
    name: str,
    title: str,
    scale: str,
    cells: list[Cell],
    row: RowOf,
    panels: Sequence[Panel],
    *notes: str,
    more: str = "",
) -> Table:
    """A table of this paper that compares what is in its panels; `more` is what else differs at the default scale."""

    def plots(done: Group) -> list[Plot]:
        return [plot for panel in panels for plot in panel.plots(done)]

    def findings(done: Group) -> list[str]:
        return [line for panel in panels for line in panel.findings(done)]

    full = "EMNIST Letters as it is at hand: 62,400 letters in place of the paper's 88,800."
    words = scaled(scale, QUICK, f"{SMALL_WORDS}{more}. The paper's setting: --full.", full)
    return Table(name, title, PAPER, scale, cells, row, plots, words, (*notes, *NOTES), findings)


def measured(done: Group) -> Row:
    """Training and test accuracy with their gap, what is proven, and the time."""
    test, known = accuracies(done), accuracies(done, "train_accuracy")
    gap = [a - b for a, b in zip(known, test, strict=True)]
    epsilon = done[0].result["epsilon"]
    return {
        "train, ours": spread(known, "{:.2f}"),
        "test, ours": spread(test, "{:.2f}"),
        "gap, ours": spread(gap, "{:.2f}"),
        "epsilon": "unproven" if epsilon is None else bound(epsilon),
        **minutes(done),
    }


def order(done: Group) -> str:
    """Methods from best to worst by mean test accuracy; `~` where the next is within one standard deviation."""
    found = {method: accuracies(having(done, method=method)) for method in values(done, "method")}
    ranked = sorted(found, key=lambda method: -float(np.mean(found[method])))
    said = f"{ranked[0]} {spread(found[ranked[0]], '{:.1f}')}"
    for above, method in pairwise(ranked):
        loose = max((float(np.std(found[n], ddof=1)) for n in (above, method) if len(found[n]) > 1), default=0.0)
        apart = float(np.mean(found[above]) - np.mean(found[method]))
        said += f" {'~' if apart <= loose else '>'} {method} {spread(found[method], '{:.1f}')}"
    return said
