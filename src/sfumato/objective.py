"""What is learnt and how it is measured: a loss for each record, and metrics as sums that add over batches.

A loss per record lets an engine mask padding and clip single records, which a mean hides. Sums add, so that the result
depends on neither batch size nor order; `summary` turns them into numbers once, at the end.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.errors import BadValue, DataError

if TYPE_CHECKING or "jaxtyping" in sys.modules:  # tests check shapes as they run; users need not install it
    from jaxtyping import Float, Int, Shaped

if TYPE_CHECKING:
    from sfumato.data.population import Records

Sums = Mapping[str, Tensor]


def _no_metrics(outputs: Tensor, y: Tensor) -> dict[str, Tensor]:
    return {}


def _no_summary(sums: Sums) -> dict[str, float]:
    return {}


@dataclass(frozen=True)
class Objective:
    """`loss(outputs, y)` has one number per record, `metrics(outputs, y)` sums, `summary(sums)` what is reported.

    `primary` is the metric that a run reports as its accuracy. The mean loss is always reported, as `loss`.

    >>> absolute = Objective(loss=lambda outputs, y: (outputs.squeeze(-1) - y).abs())
    >>> absolute.loss(torch.tensor([[1.0], [2.0]]), torch.tensor([0.0, 0.5]))
    tensor([1.0000, 1.5000])
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    metrics: Callable[[Tensor, Tensor], dict[str, Tensor]] = _no_metrics
    summary: Callable[[Sums], dict[str, float]] = _no_summary
    primary: str = "loss"
    name: str = "custom"


def classification(classes: int) -> Objective:
    """One class of several: cross entropy; accuracy, balanced accuracy and macro F1 from a confusion matrix.

    Balanced accuracy is the mean recall over classes that occur; macro F1 the mean over classes that occur or are
    predicted, as scikit-learn has them.
    """
    if classes < 2:
        raise BadValue(f"classification(classes={classes}): there must be at least 2 classes.")
    metrics = partial(_confusion, classes=classes)
    return Objective(cross_entropy, metrics, _confusion_summary, "accuracy", f"classification({classes})")


def regression() -> Objective:
    """Numbers: squared error, averaged over the targets of a record; mse, mae and r2."""
    return Objective(squared_error, _errors, _errors_summary, "r2", "regression")


def next_character(vocabulary: int, padding: int | None = None) -> Objective:
    """The next of `vocabulary` characters: outputs [records, positions, vocabulary], or [records, vocabulary] for one.

    The loss of a record is the mean over its positions, so long texts weigh no more; accuracy counts characters.
    Positions whose target is `padding` count in neither.
    """
    if vocabulary < 2:
        raise BadValue(f"next_character(vocabulary={vocabulary}): there must be at least 2 characters.")
    loss = partial(_character_loss, padding=padding)
    metrics = partial(_characters, vocabulary=vocabulary, padding=padding)
    return Objective(loss, metrics, _characters_summary, "accuracy", f"next_character({vocabulary})")


def multi_label(labels: int) -> Objective:
    """Labels that hold or not: mean binary cross entropy over labels; accuracy per label, exact match and F1."""
    if labels < 1:
        raise BadValue(f"multi_label(labels={labels}): there must be at least 1 label.")
    return Objective(
        _label_loss, partial(_labels, labels=labels), _labels_summary, "accuracy", f"multi_label({labels})"
    )


def cross_entropy(
    outputs: Float[Tensor, "*shape classes"],
    y: Int[Tensor, " *shape"],
) -> Float[Tensor, " *shape"]:
    """Minus the log-probability of the right class.

    The two operations are faster than nll_loss, most of all under vmap.
    """
    return outputs.logsumexp(-1) - outputs.gather(-1, y.unsqueeze(-1)).squeeze(-1)


def squared_error(
    outputs: Float[Tensor, "records ..."],
    y: Shaped[Tensor, "records ..."],
) -> Float[Tensor, " records"]:
    """The squared error of each record; a lone last dimension of the outputs is dropped where the targets have none."""
    return _mean_of_record((_aligned(outputs, y) - y).square())


def check_loss(objective: Objective, outputs: Tensor, y: Tensor) -> Tensor:
    """The losses of a batch, or a refusal where there is not one per record."""
    losses = objective.loss(outputs, y)
    if not isinstance(losses, Tensor) or losses.shape != y.shape[:1]:
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise BadValue(
            f"the loss of {objective.name!r} has the shape {shape} for {y.shape[0]} records: it must give one number "
            "per record. Use reduction='none', and average over anything but records."
        )
    return losses


def evaluate(
    model: Callable[[Tensor], Tensor], records: Records, objective: Objective, batch_size: int = 1000
) -> dict[str, float]:
    """The summary of a model on records; a module is put into evaluation mode for it, and back.

    Without records every number is NaN.
    """
    if batch_size < 1:
        raise BadValue(f"batch_size={batch_size} must be at least 1.")
    sums: dict[str, Tensor] = {}
    total = 0.0
    module = model if isinstance(model, nn.Module) else nn.Identity()
    device = next((p.device for p in module.parameters()), records.x.device)
    training = [layer for layer in module.modules() if layer.training]
    try:
        for layer in training:
            layer.training = False
        with torch.no_grad():
            for start in range(0, max(records.count, 1), batch_size):
                x, y = (part[start : start + batch_size].to(device) for part in records)
                outputs = model(x)
                total += float(check_loss(objective, outputs, y).double().sum())
                for name, value in objective.metrics(outputs, y).items():
                    sums[name] = sums[name] + value if name in sums else value
    finally:
        for layer in training:
            layer.training = True
    if records.count == 0:
        return dict.fromkeys(["loss", *objective.summary(sums)], math.nan)
    return {"loss": total / records.count, **objective.summary(sums)}


def _ratio(part: Tensor, whole: Tensor) -> float:
    return float(part / whole) if whole else math.nan


def _mean_of_record(values: Tensor) -> Tensor:
    return values.flatten(1).mean(-1) if values.ndim > 1 else values


def _aligned(outputs: Tensor, y: Tensor) -> Tensor:
    if outputs.ndim == y.ndim + 1 and outputs.shape[-1] == 1:
        outputs = outputs.squeeze(-1)
    if outputs.shape != y.shape:
        raise BadValue(
            f"outputs of shape {tuple(outputs.shape)} do not match targets of shape {tuple(y.shape)}. "
            "Give the model as many outputs as there are targets."
        )
    return outputs


def _confusion(outputs: Tensor, y: Tensor, classes: int) -> dict[str, Tensor]:
    """Counts [true class, predicted class]."""
    if y.numel() and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise DataError(
            f"labels from {int(y.min())} to {int(y.max())} with {classes} classes. Number the classes from 0."
        )
    if outputs.shape[-1] != classes:
        raise BadValue(f"the model has {outputs.shape[-1]} outputs for {classes} classes. Give it one per class.")
    pairs = y.reshape(-1) * classes + outputs.argmax(-1).reshape(-1)
    return {"confusion": torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)}


def _confusion_summary(sums: Sums) -> dict[str, float]:
    matrix = sums["confusion"].double()
    right, true, predicted = matrix.diagonal(), matrix.sum(1), matrix.sum(0)
    recall, f1 = right / true, 2 * right / (true + predicted)
    return {
        "accuracy": _ratio(right.sum(), true.sum()),
        "balanced_accuracy": float(recall[true > 0].mean()),
        "macro_f1": float(f1[true + predicted > 0].mean()),
    }


def _errors(outputs: Tensor, y: Tensor) -> dict[str, Tensor]:
    y = y.double()
    error = _aligned(outputs, y).double() - y
    values = {"count": torch.ones_like(y), "squares": error**2, "sizes": error.abs(), "y": y, "y_squares": y**2}
    return {name: value.sum(0) for name, value in values.items()}


def _errors_summary(sums: Sums) -> dict[str, float]:
    count = sums["count"]
    spread = sums["y_squares"] - sums["y"] ** 2 / count
    return {
        "mse": float((sums["squares"] / count).mean()),
        "mae": float((sums["sizes"] / count).mean()),
        "r2": float((1 - sums["squares"] / spread).mean()),
    }


def _character_loss(outputs: Tensor, y: Tensor, padding: int | None) -> Tensor:
    if padding is None:
        return _mean_of_record(cross_entropy(outputs, y))
    real = (y != padding).to(outputs.dtype)
    losses = cross_entropy(outputs, torch.where(y != padding, y, 0)) * real
    return _mean_of_record(losses) / _mean_of_record(real).clamp(min=1e-9)


def _characters(outputs: Tensor, y: Tensor, vocabulary: int, padding: int | None) -> dict[str, Tensor]:
    if outputs.shape[-1] != vocabulary:
        raise BadValue(
            f"the model has {outputs.shape[-1]} outputs for {vocabulary} characters. Give it one per character."
        )
    real = torch.ones_like(y, dtype=torch.bool) if padding is None else y != padding
    return {"right": ((outputs.argmax(-1) == y) & real).sum(), "characters": real.sum()}


def _characters_summary(sums: Sums) -> dict[str, float]:
    return {"accuracy": _ratio(sums["right"], sums["characters"])}


def _label_loss(outputs: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="none").mean(-1)


def _labels(outputs: Tensor, y: Tensor, labels: int) -> dict[str, Tensor]:
    if outputs.shape[-1] != labels or y.shape != outputs.shape:
        raise BadValue(
            f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(y.shape)} for {labels} labels. "
            "Give both one column per label."
        )
    said, true = outputs > 0, y > 0.5
    return {
        "hits": (said & true).sum(0),
        "false_alarms": (said & ~true).sum(0),
        "misses": (~said & true).sum(0),
        "right": (said == true).sum(0),
        "exact": (said == true).all(-1).sum(),
        "rows": torch.tensor(y.shape[0], device=y.device),
    }


def _labels_summary(sums: Sums) -> dict[str, float]:
    hits, wrong = sums["hits"].double(), (sums["false_alarms"] + sums["misses"]).double()
    f1 = torch.where(hits + wrong > 0, 2 * hits / (2 * hits + wrong), 0.0)
    return {
        "accuracy": _ratio(sums["right"].double().mean(), sums["rows"]),
        "exact_match": _ratio(sums["exact"], sums["rows"]),
        "micro_f1": _ratio(2 * hits.sum(), 2 * hits.sum() + wrong.sum()),
        "macro_f1": float(f1.mean()),
    }
