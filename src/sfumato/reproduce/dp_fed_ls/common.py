"""What the tables of DP-Fed-LS have in common."""

from __future__ import annotations

from typing import Any

from sfumato.report.curves import Plot
from sfumato.reproduce.show import by_round, having, values
from sfumato.reproduce.table import Group, at

PAPER = "Liang, Wang, Gu, Osher and Yao 2020, Exploring Private Federated Learning with Laplacian Smoothing (DP-Fed-LS)"
UNIFORM, POISSON = "uniform", "Poisson"
MNIST: dict[str, Any] = {
    "data": "mnist", "split": "iid", "clients": 1000, "records": 50, "held_out": 10_000, "model": "logistic",
    "recipe": "dp-fed-ls", "clip": 0.3, "project": True, "lr": 0.01, "lr_decay": 0.99, "epochs": 5, "batch_size": 10,
    "weight_decay": 4e-5, "rounds": 30, "delta": 1000**-1.1, "plan": ["stacked", 50, 1], "threads": 1,
}  # fmt: skip
SHAKESPEARE: dict[str, Any] = {
    "data": "shakespeare", "split": "natural", "clients": 975, "records": None, "model": "char-lstm",
    "recipe": "dp-fed-ls", "clip": 5.0, "project": True, "lr": 1.47, "lr_decay": 0.99, "epochs": 5, "batch_size": 50,
    "weight_decay": 4e-5, "rounds": 100, "delta": 975**-1.1, "plan": ["loop", 1, 1],
}  # fmt: skip
SMALL: dict[str, Any] = {
    "records": 50, "model": "char-lstm:64x1", "batch_size": 10, "rounds": 30, "evaluate_every": 3, "threads": 1,
}  # fmt: skip
QUICK: dict[str, Any] = {
    "data": "digits", "split": "iid", "clients": 40, "records": 20, "held_out": 200, "model": "logistic", "rounds": 3,
    "lr": 0.05, "clip": 0.3, "epochs": 1, "batch_size": 10, "evaluate_every": 1, "plan": ["stacked", 10, 1], "threads": 1,
}  # fmt: skip
NOTES = (
    "The noise's standard deviation is that of the sum of updates, on each coordinate. Uniform sampling is proven for replacing "
    "a client (sensitivity 2 G) and against one client who sees the model, Poisson sampling for adding or removing one (G); "
    "the sum is divided by the expected cohort.",
    "Accuracy: on the public test split, after the last round; curves: on records that were held out before there were clients.",
)


def sample_of(sampling: str, rate: float, clients: int) -> str:
    """The sampler's text."""
    return f"poisson:{rate:g}" if sampling == POISSON else f"fixed:{round(rate * clients)}"


def shakespeare(scale: str, sampling: str, **changed: float) -> dict[str, Any]:
    """The settings of a run on Shakespeare."""
    scaled, rate = at(scale, (QUICK, 0.5), (SMALL, 0.1), ({}, 0.2))
    settings = {**SHAKESPEARE, **scaled, **changed}
    return {**settings, "sample": sample_of(sampling, rate, settings["clients"])}


def curves(name: str, title: str, done: Group) -> list[Plot]:
    """Validation loss and accuracy by round, as means over seeds with a band: one line for each strength."""
    lines = {f"strength {value:g}": having(done, strength=value) for value in values(done, "strength")}
    return [
        plot
        for place, word in ((1, "loss"), (2, "accuracy"))
        for plot in by_round(f"{name}-{word}", f"{title}, validation {word}", f"Validation {word}", lines, place)
    ]
