"""A model of several inputs behind one of one tensor: what trains sees records as rows, and the model its own arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.data.inputs import Inputs
from sfumato.errors import BadValue


class SeveralInputs(nn.Module):
    """Takes rows apart and calls the model inside, by name or by place; of what it answers, the tensor or its `logits`.

    Every record is taken apart alone. The model inside is the user's own, and is given back as such (`own_module`).
    """

    def __init__(self, inside: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.inside, self.inputs = inside, inputs

    def forward(self, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():  # records stay apart here, which nobody need watch
            given = self.inputs.unpack(x)
        answer = self.inside(**given) if isinstance(given, dict) else self.inside(*given)
        return answer if isinstance(answer, Tensor) else _logits(answer)


def _logits(answer: Any) -> Tensor:
    found = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", None)
    if isinstance(found, Tensor):
        return found
    raise BadValue(
        f"the model answers with a {type(answer).__name__} without logits. Let forward return one tensor, with a row for each "
        "record."
    )


def taking(module: nn.Module, inputs: Inputs | None) -> nn.Module:
    """The module, as one that takes records of these inputs; as it is, where a record is one tensor."""
    return module if inputs is None or isinstance(module, SeveralInputs) else SeveralInputs(module, inputs)


def own_module(module: nn.Module) -> nn.Module:
    """The user's own module, with its own names."""
    return module.inside if isinstance(module, SeveralInputs) else module


def inputs_of(module: nn.Module) -> Inputs | None:
    """The inputs that a module takes apart; None, if it takes one tensor."""
    return module.inputs if isinstance(module, SeveralInputs) else None
