"""Losses per record, and sums that add over batches with the numbers that they become.

Each pair `x` and `x_summary` belongs together: the first gives sums of a batch, the second reads their total.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from sfumato.errors import BadValue, DataError

if TYPE_CHECKING or "jaxtyping" in sys.modules:  # tests check shapes as they run; users need not install it
    from jaxtyping import Float, Shaped

Sums = Mapping[str, Tensor]


def cross_entropy(outputs: Float[Tensor, "*shape classes"], y: Tensor) -> Float[Tensor, " *shape"]:
    """Minus the log-probability of the right class.

    The two operations are faster than nll_loss, most of all under vmap.
    """
    _check_classes(outputs, y)
    return outputs.logsumexp(-1) - outputs.gather(-1, y.unsqueeze(-1)).squeeze(-1)


def cross_entropy_gradient(outputs: Float[Tensor, "records classes"], y: Tensor) -> Float[Tensor, "records classes"]:
    """The gradient of each record's cross entropy at its outputs: the probabilities, less one at the right class."""
    _check_classes(outputs, y)
    gradient = outputs.softmax(-1)
    return gradient.scatter_add_(-1, y.unsqueeze(-1), gradient.new_full((1, 1), -1.0).expand(len(y), 1))


def _check_classes(outputs: Tensor, y: Tensor) -> None:
    if y.ndim != outputs.ndim - 1 or y.dtype != torch.int64:
        raise BadValue(
            f"targets of {y.dtype} and shape {tuple(y.shape)} are no classes for outputs of shape {tuple(outputs.shape)}. "
            "Give one int64 class per record."
        )


def squared_error(outputs: Float[Tensor, "records ..."], y: Shaped[Tensor, "records ..."]) -> Float[Tensor, " records"]:
    """The squared error of each record; a lone last dimension of the outputs is dropped where the targets have none."""
    return _mean_of_record((aligned(outputs, y) - y).square())


def _ratio(part: Tensor, whole: Tensor) -> float:
    return float(part / whole) if whole else math.nan


def _mean_of_record(values: Tensor) -> Tensor:
    return values.flatten(1).mean(-1) if values.ndim > 1 else values


def aligned(outputs: Tensor, y: Tensor) -> Tensor:
    """Outputs in the shape of the targets, without a lone last dimension; refuses those of another shape."""
    if outputs.ndim == y.ndim + 1 and outputs.shape[-1] == 1:
        outputs = outputs.squeeze(-1)
    if outputs.shape != y.shape:
        raise BadValue(
            f"outputs of shape {tuple(outputs.shape)} do not match targets of shape {tuple(y.shape)}. "
            "Give the model as many outputs as there are targets."
        )
    return outputs


def confusion(outputs: Tensor, y: Tensor, classes: int) -> dict[str, Tensor]:
    """Counts [true class, predicted class]."""
    if y.numel() and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise DataError(f"a label is not among 0 to {classes - 1}, the {classes} classes. Number the classes from 0.")
    if outputs.shape[-1] != classes:
        raise BadValue(f"the model has {outputs.shape[-1]} outputs for {classes} classes. Give it one per class.")
    pairs = y.reshape(-1) * classes + outputs.argmax(-1).reshape(-1)
    return {"confusion": torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)}


def confusion_summary(sums: Sums) -> dict[str, float]:
    """Accuracy, balanced accuracy and macro F1."""
    matrix = sums["confusion"].double()
    right, true, predicted = matrix.diagonal(), matrix.sum(1), matrix.sum(0)
    recall, f1 = right / true, 2 * right / (true + predicted)
    return {
        "accuracy": _ratio(right.sum(), true.sum()),
        "balanced_accuracy": float(recall[true > 0].mean()),
        "macro_f1": float(f1[true + predicted > 0].mean()),
    }


def errors(outputs: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Sums of errors and of targets, for each target of a record."""
    y = y.double()
    error = aligned(outputs, y).double() - y
    values = {"count": torch.ones_like(y), "squares": error**2, "sizes": error.abs(), "y": y, "y_squares": y**2}
    return {name: value.sum(0) for name, value in values.items()}


def errors_summary(sums: Sums) -> dict[str, float]:
    """Mean squared error, mean absolute error and r2, averaged over targets."""
    count = sums["count"]
    spread = sums["y_squares"] - sums["y"] ** 2 / count
    return {
        "mse": float((sums["squares"] / count).mean()),
        "mae": float((sums["sizes"] / count).mean()),
        "r2": float((1 - sums["squares"] / spread).mean()),
    }


def character_loss(outputs: Tensor, y: Tensor, padding: int | None) -> Tensor:
    """The mean over the positions of a record that are not padding."""
    if padding is None:
        return _mean_of_record(cross_entropy(outputs, y))
    real = (y != padding).to(outputs.dtype)
    losses = cross_entropy(outputs, torch.where(y != padding, y, 0)) * real
    return _mean_of_record(losses) / _mean_of_record(real).clamp(min=1e-9)


def characters(outputs: Tensor, y: Tensor, vocabulary: int, padding: int | None) -> dict[str, Tensor]:
    """Characters that are right, and all of them."""
    if outputs.shape[-1] != vocabulary:
        raise BadValue(
            f"the model has {outputs.shape[-1]} outputs for {vocabulary} characters. Give it one per character."
        )
    real = torch.ones_like(y, dtype=torch.bool) if padding is None else y != padding
    return {"right": ((outputs.argmax(-1) == y) & real).sum(), "characters": real.sum()}


def characters_summary(sums: Sums) -> dict[str, float]:
    """Accuracy over characters."""
    return {"accuracy": _ratio(sums["right"], sums["characters"])}


def label_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """The mean over the labels of a record."""
    _check_labels(outputs, y)
    return F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="none").mean(-1)


def _check_labels(outputs: Tensor, y: Tensor) -> None:
    if y.shape != outputs.shape:
        raise BadValue(
            f"targets of shape {tuple(y.shape)} are no labels that hold or not, for outputs of shape {tuple(outputs.shape)}. "
            "Give both one column per label; for one class per record, the task is classification."
        )


def labels(outputs: Tensor, y: Tensor, labels: int) -> dict[str, Tensor]:
    """Counts for each label, and of records with every label right."""
    _check_labels(outputs, y)
    if outputs.shape[-1] != labels:
        raise BadValue(f"the model has {outputs.shape[-1]} outputs for {labels} labels. Give it one per label.")
    said, true = outputs > 0, y > 0.5
    return {
        "hits": (said & true).sum(0),
        "false_alarms": (said & ~true).sum(0),
        "misses": (~said & true).sum(0),
        "right": (said == true).sum(0),
        "exact": (said == true).all(-1).sum(),
        "rows": torch.tensor(y.shape[0], device=y.device),
    }


def labels_summary(sums: Sums) -> dict[str, float]:
    """Accuracy over labels, exact match, and F1 over all labels and as their mean."""
    hits, wrong = sums["hits"].double(), (sums["false_alarms"] + sums["misses"]).double()
    f1 = torch.where(hits + wrong > 0, 2 * hits / (2 * hits + wrong), 0.0)
    return {
        "accuracy": _ratio(sums["right"].double().mean(), sums["rows"]),
        "exact_match": _ratio(sums["exact"], sums["rows"]),
        "micro_f1": _ratio(2 * hits.sum(), 2 * hits.sum() + wrong.sum()),
        "macro_f1": float(f1.mean()),
    }


# Losses that look at each record alone, whatever stands beside it in a batch.
RECORD_WISE = {cross_entropy, squared_error, character_loss, label_loss}

# Gradients at outputs [records, classes] that are known without autograd.
GRADIENTS = {cross_entropy: cross_entropy_gradient}
