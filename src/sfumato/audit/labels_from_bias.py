"""Labels from the gradient of a last layer's bias, which anyone who sees an update sees.

For cross entropy that gradient is, for class c, mean p_c - n_c / n: what the model says of c on average, less the share of c.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sfumato.errors import BadValue
from sfumato.update import Layout


def last_bias(gradient: Tensor, module: nn.Module, layout: Layout, outputs: int) -> Tensor:
    """The gradient of the biases of the last layer; of its rows of weights, where it has none."""
    parts = layout.split(gradient[None])
    last = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)][-1:]
    if not last or (found := parts.get(f"{last[0]}.bias", parts.get(f"{last[0]}.weight"))) is None:
        raise BadValue(
            "the model has no last linear layer that is trained, so its update shows no labels. Use another one."
        )
    found = found[0]
    if len(found) != outputs:
        raise BadValue(
            f"the last linear layer has {len(found)} outputs, and there are {outputs} classes. Use another model."
        )
    return found if found.ndim == 1 else found.sum(1)  # inputs that are not negative leave the sign as it is


def recovered(bias: Tensor, records: int, said: Tensor | None = None) -> Tensor:
    """As many labels as there are records, sorted, from a gradient of biases of any scale s.

    For class c it is s (p_c - n_c / n). Only a class that is there can be negative, so those come first; for one record that is
    its label, whatever the model is. `said` is p on public records, uniform if it is not given. A class that nobody has shows
    s p_c, so s is taken as the largest quotient of the two, and the other labels are those of which most are missing.

    >>> recovered(torch.tensor([0.1, -0.9, 0.8]), 1)
    tensor([1])
    """
    left = bias.double()
    said = torch.full_like(left, 1.0 / len(left)) if said is None else said.double().clamp(min=1e-6)
    scale = (left / said).max().clamp(min=1e-12)
    missing = records * (said - left / scale)
    negative = torch.nonzero(left < 0).flatten()
    found = negative[torch.argsort(left[negative])][:records].tolist() or [int(left.argmin())]
    missing[found] -= 1.0
    while len(found) < records:
        label = int(missing.argmax())
        found.append(label)
        missing[label] -= 1.0
    return torch.tensor(sorted(found), dtype=torch.int64)


def share_right(guessed: Tensor, truth: Tensor) -> float:
    """Which part of the labels is right, as often as each was guessed."""
    classes = int(max(guessed.max(), truth.max())) + 1
    counts = (torch.bincount(labels, minlength=classes) for labels in (guessed, truth))
    return float(torch.minimum(*counts).sum()) / len(truth)
