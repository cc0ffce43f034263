"""What people bring in place of an Objective, adapted where that is sure: a loss of torch becomes one number per record."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sfumato import measures
from sfumato.errors import BadValue
from sfumato.objective import Objective, classification, multi_label, regression

_OWN = "Give classification(classes), regression(), multi_label(labels), next_character(vocabulary), or Objective(loss=...)"


@dataclass(frozen=True)
class PerRecord:
    """A loss of torch, averaged over everything but records; with `alike`, outputs and targets have the same shape."""

    loss: nn.Module
    alike: bool

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        outputs = measures.aligned(outputs, y) if self.alike else outputs
        values: Tensor = self.loss(outputs, y.to(outputs.dtype) if self.alike else y)
        return values.flatten(1).mean(-1) if values.ndim > 1 else values


def as_objective(given: Any, module: nn.Module | None, x: Tensor, y: Tensor) -> Objective:
    """The Objective that is given, or that a loss of torch stands for: `nn.CrossEntropyLoss()` is classification.

    `x` and `y` are some records, of which only shapes and types are used; `module` is None where a model is named and not built.
    """
    if isinstance(given, Objective):
        return given
    if isinstance(given, nn.modules.loss._Loss):
        outputs = None if module is None else _outputs(module, x)
        return _of_loss(given, outputs, tuple(y.shape[1:]))
    if callable(given):
        raise BadValue(
            f"the objective is {getattr(given, '__name__', repr(given))!r}, a function. {_OWN} with one number per record "
            "(reduction='none'), averaged over anything but records."
        )
    raise BadValue(f"the objective is {given!r}, a {type(given).__name__}. {_OWN}.")


def _of_loss(loss: Any, outputs: tuple[int, ...] | None, targets: tuple[int, ...]) -> Objective:
    name = type(loss).__name__
    if isinstance(loss, nn.CrossEntropyLoss):
        if outputs is None:
            raise BadValue(f"{name}() does not say how many classes there are. Give classification(classes).")
        if len(outputs) != 1 or targets:
            raise BadValue(
                f"{name}() with outputs of shape {outputs} and targets of shape {targets} for each record: give "
                "classification(classes) for one class per record, next_character(vocabulary) for one per position (classes "
                "last), or an Objective."
            )
        known = classification(outputs[0])
        if (
            loss.weight is None
            and loss.label_smoothing == 0.0
            and loss.ignore_index == nn.CrossEntropyLoss().ignore_index
        ):
            return known
        return Objective(
            _per_record(loss, alike=False), known.metrics, known.summary, known.primary, repr(loss), "", outputs[0]
        )
    if isinstance(loss, nn.MSELoss):
        return regression()
    if isinstance(loss, nn.BCEWithLogitsLoss) and outputs is not None and len(outputs) == 1:
        if outputs != targets:
            raise BadValue(
                f"{name}() with outputs of shape {outputs} and targets of shape {targets} for each record. Give both one "
                "column per label (y.unsqueeze(-1)); for one class of two per record, two outputs and classification(2)."
            )
        known = multi_label(outputs[0])
        if loss.weight is None and loss.pos_weight is None:
            return known
        return Objective(_per_record(loss, alike=True), known.metrics, known.summary, known.primary, repr(loss))
    if isinstance(loss, nn.L1Loss | nn.SmoothL1Loss | nn.HuberLoss):
        return Objective(_per_record(loss, alike=True), measures.errors, measures.errors_summary, "r2", repr(loss))
    raise BadValue(f"{name}() is not adapted. {_OWN} with one number per record (reduction='none').")


def _per_record(loss: Any, alike: bool) -> PerRecord:
    single = copy.deepcopy(loss)
    single.reduction = "none"
    return PerRecord(single, alike)


def _outputs(module: nn.Module, x: Tensor) -> tuple[int, ...]:
    """The shape of a model's outputs for one record; a model that cannot take such records is refused where all are checked."""
    try:
        device = next((p.device for p in module.parameters()), x.device)
        with torch.no_grad():
            found = copy.deepcopy(module).eval()(torch.zeros((2, *x.shape[1:]), dtype=x.dtype, device=device))
        return tuple(found.shape[1:])
    except Exception as error:
        raise BadValue(
            f"the model cannot take records of shape {tuple(x.shape[1:])} and type {x.dtype}: {type(error).__name__}: {error}. "
            "Give a model for such records, or reshape the data."
        ) from error
