"""What a run says of its votes: released labels, how the student agrees with them, and what was asked. All of it is released."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.round import Round
from sfumato.voting.student import Student

_SHOWN = 24  # queries with their pictures
_AT_ONCE = 1000


def told(round: Round, state: Mapping[str, Tensor], module: nn.Module, stddev: float | None) -> dict[str, Any] | None:
    """Numbers and pictures for run.json and its page; None where nobody votes, or nothing was released yet."""
    student = round.optimizer
    if not isinstance(student, Student) or "votes" not in state:
        return None
    numbers, targets, _ = student.labelled({name: value.cpu() for name, value in state.items()}, stddev)
    if not len(numbers):
        return {"asked": int(state["asked"].sum()), "answered": 0, "classes": [], "agreement": None, "shown": []}
    module.eval()
    place = next(module.parameters()).device
    with torch.no_grad():
        parts = torch.split(student.queries.pool[numbers], _AT_ONCE)
        outputs = torch.cat([module(part.to(place)).cpu() for part in parts])
    if targets.is_floating_point():
        counts, agrees, labels = targets.sum(0), (outputs > 0) == targets.bool(), _names(targets)
    else:
        counts, agrees = torch.bincount(targets, minlength=outputs.shape[1]), outputs.argmax(1) == targets
        labels = [str(label) for label in targets.tolist()]
    return {
        "asked": int(state["asked"].sum()),
        "answered": int(state["answered"].sum()),
        "classes": [int(count) for count in counts.tolist()],
        "agreement": agrees.double().mean().item(),
        "shown": _shown(student, numbers[:_SHOWN], labels),
    }


def _names(targets: Tensor) -> list[str]:
    return [", ".join(str(place) for place in row.nonzero().flatten().tolist()) or "none" for row in targets]


def _shown(student: Student, numbers: Tensor, labels: list[str]) -> list[dict[str, str]]:
    """The first queries as pictures, if they are pictures, with their released labels."""
    public = student.queries.public
    assert public is not None, "somebody was asked"
    raw = public.records.x if public.pictures is None else public.pictures
    if raw.dim() != 4 or raw.shape[1] not in (1, 3):
        return []
    return [{"label": label, "png": _png(raw[number])} for number, label in zip(numbers.tolist(), labels, strict=False)]


def _png(picture: Tensor) -> str:
    from PIL import Image

    values = picture.double()
    low, high = values.min(), values.max()
    pixels = ((values - low) / (high - low).clamp(min=1e-12) * 255).round().to(torch.uint8)
    shaped = pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(shaped.numpy()).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
