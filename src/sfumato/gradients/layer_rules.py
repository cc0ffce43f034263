"""What one layer adds to a record's gradient, read off its input and the gradient at its output.

The gradient of a linear map for one record is `sum_t g_t a_t^T`: `a` is what came in and `g` what came back, at each of the
positions `t` where the map was used (one for a plain layer, one per pixel for a convolution, one per token for a sequence).
A rule turns `(a, g)` into pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.gradients.record_gradients import Dyads, Outer, Piece, Rows, Scattered

Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
_MEMORY = 40  # the operations that take as long as writing one number of a gradient and reading it back, as measured


def _product(inputs: Tensor, outputs: Tensor, kernel: tuple[int, ...] = ()) -> Piece:
    """Form the gradients where two Gram matrices would cost more than writing them and reading them back."""
    positions, wide, high = inputs.shape[2], inputs.shape[3], outputs.shape[3]
    if 2 * positions * positions * (wide + high) < _MEMORY * wide * high:
        return Outer(inputs, outputs, kernel)
    formed = torch.bmm(outputs.flatten(0, 1).transpose(1, 2), inputs.flatten(0, 1))
    return Rows(formed.view(len(inputs), -1), kernel)


def _linear(layer: nn.Linear, a: Tensor, g: Tensor) -> dict[str, Callable[[], Piece]]:
    if a.dim() == 2:
        return {"weight": lambda: Dyads(a, g), "bias": lambda: Rows(g)}
    a, g = a.reshape(len(a), 1, -1, a.shape[-1]), g.reshape(len(g), 1, -1, g.shape[-1])
    return {"weight": lambda: _product(a, g), "bias": lambda: Rows(g.sum((1, 2)))}


def patches(layer: Convolution, image: Tensor) -> Tensor:
    """What lies under the kernel at every place of an image, copied: [records, groups, places, kernel * channels of the group]."""
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padding = layer._reversed_padding_repeated_twice
    a = functional.pad(image, padding, mode) if any(padding) else image
    inside = a.shape[1] // layer.groups
    steps = a.stride()[2:]
    reach = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    counts = [(size - r - 1) // s + 1 for size, r, s in zip(a.shape[2:], reach, layer.stride, strict=True)]
    records = ((len(a), layer.groups), (a.stride(0), inside * a.stride(1)))
    places = (counts, [step * s for step, s in zip(steps, layer.stride, strict=True)])
    patch = (
        (*layer.kernel_size, inside),
        (*(step * d for step, d in zip(steps, layer.dilation, strict=True)), a.stride(1)),
    )
    # Copy with the longer run of neighbours in memory innermost: channels (and columns) of a patch, or places in a line.
    channels_run = inside * layer.kernel_size[-1] if a.stride(1) == 1 else 1
    along_places = counts[-1] > channels_run
    first, second = (patch, places) if along_places else (places, patch)
    strided = a.as_strided((*records[0], *first[0], *second[0]), (*records[1], *first[1], *second[1]))
    flat = strided.reshape(len(a), layer.groups, math.prod(first[0]), math.prod(second[0]))
    return flat.transpose(2, 3) if along_places else flat


def _convolution(layer: Convolution, a: Tensor, g: Tensor) -> dict[str, Callable[[], Piece]]:
    def weight() -> Piece:
        last = g.movedim(1, -1).reshape(len(g), -1, layer.groups, layer.out_channels // layer.groups)
        return _product(patches(layer, a), last.transpose(1, 2), layer.kernel_size)

    return {"weight": weight, "bias": lambda: Rows(g.flatten(2).sum(2))}


def _embedding(layer: nn.Embedding, a: Tensor, g: Tensor) -> dict[str, Callable[[], Piece]]:
    def weight() -> Piece:
        words, rows = a.reshape(len(a), -1), g.reshape(-1, g.shape[-1])
        place = words + layer.num_embeddings * torch.arange(len(a), device=a.device)[:, None]
        places, inverse = torch.unique(place, return_inverse=True)
        summed = rows.new_zeros(len(places), rows.shape[1]).index_add_(0, inverse.flatten(), rows)
        word = places % layer.num_embeddings
        if layer.padding_idx is not None:
            summed = summed.masked_fill((word == layer.padding_idx)[:, None], 0.0)
        return Scattered(summed, places // layer.num_embeddings, word, len(a))

    return {"weight": weight}


def _last_dimensions(layer: nn.LayerNorm | nn.RMSNorm, a: Tensor, g: Tensor) -> dict[str, Callable[[], Piece]]:
    shape = list(layer.normalized_shape)

    def over_positions(part: Tensor) -> Rows:
        return Rows(part.reshape(len(part), -1, math.prod(shape)).sum(1))

    def weight() -> Piece:
        norm = functional.layer_norm if isinstance(layer, nn.LayerNorm) else functional.rms_norm
        return over_positions(g * norm(a, shape, eps=layer.eps))  # type: ignore[arg-type]

    return {"weight": weight, "bias": lambda: over_positions(g)}


def _channels(layer: nn.Module, a: Tensor, g: Tensor) -> dict[str, Callable[[], Piece]]:
    def weight() -> Piece:
        if isinstance(layer, nn.GroupNorm):
            normal = functional.group_norm(a, layer.num_groups, eps=layer.eps)
        else:
            normal = functional.instance_norm(a, eps=float(layer.eps))  # type: ignore[arg-type]
        return Rows((g * normal).reshape(len(g), g.shape[1], -1).sum(2))

    return {"weight": weight, "bias": lambda: Rows(g.reshape(len(g), g.shape[1], -1).sum(2))}


@dataclass(frozen=True)
class Rule:
    """How a type of layer is read: its pieces by parameter, and the dimensions that its input must have (0: any)."""

    pieces: Callable[..., dict[str, Callable[[], Piece]]]
    dimensions: int = 0


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: Rule(_linear),
    nn.Conv1d: Rule(_convolution, 3),
    nn.Conv2d: Rule(_convolution, 4),
    nn.Conv3d: Rule(_convolution, 5),
    nn.Embedding: Rule(_embedding),
    nn.LayerNorm: Rule(_last_dimensions),
    nn.RMSNorm: Rule(_last_dimensions),
    nn.GroupNorm: Rule(_channels),
    nn.InstanceNorm1d: Rule(_channels, 3),
    nn.InstanceNorm2d: Rule(_channels, 4),
    nn.InstanceNorm3d: Rule(_channels, 5),
}


def rule_for(layer: nn.Module) -> Rule | None:
    """The rule for exactly this layer, if there is one: a subclass or a hook may compute something else."""
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks:
        return None
    if isinstance(layer, nn.Embedding) and (layer.max_norm or layer.scale_grad_by_freq):
        return None
    if getattr(layer, "track_running_stats", False):
        return None
    return RULES.get(type(layer))
