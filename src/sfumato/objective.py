"""What is learnt and how it is measured: a loss for each record, and metrics as sums that add over batches.

A loss per record lets an engine mask padding and clip single records, which a mean hides. Sums add, so that the result
depends on neither batch size nor order; `summary` turns them into numbers once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sfumato import measures
from sfumato.errors import BadValue, DataError
from sfumato.measures import Sums
from sfumato.several_inputs import taking

if TYPE_CHECKING:
    from sfumato.data.population import Records


def _nothing(*measured: object) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Objective:
    """`loss(outputs, y)` has one number per record, `metrics(outputs, y)` sums, `summary(sums)` what is reported.

    `primary` is the metric that a run reports as its accuracy. The mean loss is always reported, as `loss`. `task` and
    `outputs` say how a run.toml names it; empty, if it cannot.

    >>> absolute = Objective(loss=lambda outputs, y: (outputs.squeeze(-1) - y).abs())
    >>> absolute.loss(torch.tensor([[1.0], [2.0]]), torch.tensor([0.0, 0.5]))
    tensor([1.0000, 1.5000])
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    metrics: Callable[[Tensor, Tensor], dict[str, Tensor]] = _nothing
    summary: Callable[[Sums], dict[str, float]] = _nothing
    primary: str = "loss"
    name: str = "custom"
    task: str = ""
    outputs: int = 0


def classification(classes: int) -> Objective:
    """One class of several: cross entropy; accuracy, balanced accuracy and macro F1 from a confusion matrix.

    Balanced accuracy is the mean recall over classes that occur; macro F1 the mean over classes that occur or are
    predicted, as scikit-learn has them.
    """
    if classes < 2:
        raise BadValue(f"classification(classes={classes}): there must be at least 2 classes.")
    metrics = partial(measures.confusion, classes=classes)
    name = f"classification({classes})"
    return Objective(
        measures.cross_entropy, metrics, measures.confusion_summary, "accuracy", name, "classification", classes
    )


def regression() -> Objective:
    """Numbers: squared error, averaged over the targets of a record; mse, mae and r2."""
    return Objective(measures.squared_error, measures.errors, measures.errors_summary, "r2", "regression", "regression")


def next_character(vocabulary: int, padding: int | None = None) -> Objective:
    """The next of `vocabulary` characters: outputs [records, positions, vocabulary], or [records, vocabulary] for one.

    The loss of a record is the mean over its positions, so long texts weigh no more; accuracy counts characters.
    Positions whose target is `padding` count in neither.
    """
    if vocabulary < 2:
        raise BadValue(f"next_character(vocabulary={vocabulary}): there must be at least 2 characters.")
    loss = partial(measures.character_loss, padding=padding)
    metrics = partial(measures.characters, vocabulary=vocabulary, padding=padding)
    name, task = f"next_character({vocabulary})", "next-character" if padding is None else ""
    return Objective(loss, metrics, measures.characters_summary, "accuracy", name, task, vocabulary)


def multi_label(labels: int) -> Objective:
    """Labels that hold or not: mean binary cross entropy over labels; accuracy per label, exact match and F1."""
    if labels < 1:
        raise BadValue(f"multi_label(labels={labels}): there must be at least 1 label.")
    metrics = partial(measures.labels, labels=labels)
    name = f"multi_label({labels})"
    return Objective(measures.label_loss, metrics, measures.labels_summary, "accuracy", name, "multi-label", labels)


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


def check_labels(objective: Objective, y: Tensor, what: str) -> None:
    """Refuse labels for which a model has no output; `what` says whose they are."""
    if objective.task not in ("classification", "next-character") or not y.numel() or y.is_floating_point():
        return
    wrong = ((y < 0) | (y >= objective.outputs)).reshape(len(y), -1).any(1)
    if wrong.any():
        raise DataError(
            f"{what}, record {int(wrong.nonzero()[0])}: a label is not among 0 to {objective.outputs - 1}, the {objective.outputs} "
            "outputs of the model. Number the classes from 0, and give as many outputs as there may be: --outputs, or "
            "classification(classes) and a model with as many."
        )


def check_outputs(objective: Objective, outputs: Tensor) -> None:
    """Refuse a model that has not as many outputs as the objective has classes or labels."""
    if objective.outputs and (outputs.ndim < 2 or outputs.shape[-1] != objective.outputs):
        raise BadValue(
            f"the model gives outputs of shape {tuple(outputs.shape[1:])} for a record, and {objective.name} needs "
            f"{objective.outputs}. Give its last layer {objective.outputs} outputs, or the objective as many as the model has."
        )


def evaluate(
    model: Callable[[Tensor], Tensor], records: Records, objective: Objective, batch_size: int = 1000
) -> dict[str, float]:
    """The summary of a model on records, of one input or of several; a module is put into evaluation mode for it, and back.

    Without records every number is NaN.
    """
    if batch_size < 1:
        raise BadValue(f"batch_size={batch_size} must be at least 1.")
    sums: dict[str, Tensor] = {}
    total = 0.0
    model = taking(model, records.inputs) if isinstance(model, nn.Module) else model
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
