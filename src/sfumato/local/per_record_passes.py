"""Three ways to the gradients of single records: one pass with layer rules, `vmap(grad)`, and a loop over the records.

Each takes a private copy of the module, which it may write into, and gives a `Piece` for every parameter that has a
gradient. The loop is the definition: each record alone, by autograd. The other two are faster where they apply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sfumato.errors import BadValue
from sfumato.local.layer_rules import Piece, Rows, Rule, rule_for
from sfumato.update import Layout

Loss = Callable[[Tensor, Tensor], Tensor]
Pieces = dict[str, Piece]

_FORMATS = {nn.Conv2d: torch.channels_last, nn.Conv3d: torch.channels_last_3d}


class NoRule(Exception):
    """The layer rules do not cover what the module did with this batch."""


def losses_of(loss: Loss, outputs: Tensor, y: Tensor, records: int) -> Tensor:
    """The loss of every record; refused when it is not one number per record."""
    losses = loss(outputs, y)
    if losses.shape != (records,):
        raise BadValue(
            f"the loss of {records} records has shape {tuple(losses.shape)}: a clip per record needs one number per record. "
            "Use reduction='none' and reduce only over a record's own parts."
        )
    return losses


def views(layout: Layout, row: Tensor) -> dict[str, Tensor]:
    """The parameters by name, as views of the row."""
    return {name: value[0] for name, value in layout.split(row[None]).items()}  # a leading 1 keeps 0-d shapes apart


def _copies(module: nn.Module, layout: Layout, row: Tensor) -> dict[str, Tensor]:
    parameters = dict(module.named_parameters())
    return {name: value.to(parameters[name].dtype) for name, value in views(layout, row.detach().clone()).items()}


@dataclass
class Tape:
    """What the ruled layers saw in one forward and one backward pass."""

    records: int
    calls: list[tuple[nn.Module, Tensor, int]] = field(default_factory=list)
    gradients: dict[nn.Module, Tensor] = field(default_factory=dict)


class _Keep(torch.autograd.Function):
    """The identity, which writes the gradient at its output on the tape.

    The token makes the output part of the graph when neither input nor parameters are, so that no gradient is computed
    for the first layer's input or for any weight. It works in place: later layers may overwrite the output.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, token: Tensor, tape: Tape, layer: nn.Module) -> Tensor:
        ctx.mark_dirty(output)
        ctx.tape, ctx.layer = tape, layer
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.tape.gradients[ctx.layer] = gradients[0]
        return gradients[0], None, None, None


def ruled_layers(module: nn.Module) -> dict[nn.Module, Rule] | None:
    """The layers that own trainable parameters, if a rule covers each and no parameter has two owners; else None."""
    layers: dict[nn.Module, Rule] = {}
    owned: set[int] = set()
    for layer in module.modules():
        own = {name: p for name, p in layer.named_parameters(recurse=False, remove_duplicate=False) if p.requires_grad}
        if not own:
            continue
        rule = rule_for(layer)
        if rule is None or not own.keys() <= {"weight", "bias"} or owned & {id(p) for p in own.values()}:
            return None
        if any(p.dtype != torch.float32 for p in own.values()):
            return None
        owned |= {id(p) for p in own.values()}
        layers[layer] = rule
    return layers


def one_pass(module: nn.Module, layout: Layout, loss: Loss, row: Tensor, x: Tensor, y: Tensor) -> Pieces:
    """One forward and one backward for all records; the layer rules do the rest."""
    return _one_pass(module, layout, loss, row, x, y, {})


def one_pass_channels_last(module: nn.Module, layout: Layout, loss: Loss, row: Tensor, x: Tensor, y: Tensor) -> Pieces:
    """`one_pass` with the weights of convolutions stored channels last, so that what follows them runs faster."""
    return _one_pass(module, layout, loss, row, x, y, _FORMATS)


def _one_pass(
    module: nn.Module, layout: Layout, loss: Loss, row: Tensor, x: Tensor, y: Tensor, formats: dict[Any, torch.memory_format]
) -> Pieces:
    layers = ruled_layers(module)
    if layers is None:
        raise NoRule
    names = {parameter: name for name, parameter in module.named_parameters()}
    values = views(layout, row.detach())
    for layer in layers:
        for parameter in layer.parameters(recurse=False):
            if parameter.requires_grad:
                value = values[names[parameter]]
                if type(layer) in formats and value.dim() > 1:
                    value = torch.empty_like(value, memory_format=formats[type(layer)]).copy_(value)
                parameter.data = value
    tape = Tape(len(x))
    trainable = [parameter for parameter in names if parameter.requires_grad]
    token = torch.zeros((), requires_grad=True)

    def enter(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        # Without gradients of its own here, a parameter that autograd still reaches has a use that no rule sees.
        layer.requires_grad_(False)

    def leave(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        for name in wanted[layer]:
            layer.get_parameter(name).requires_grad_(True)
        if len(inputs) != 1 or len(inputs[0]) != len(x) or (layers[layer].dimensions or inputs[0].dim()) != inputs[0].dim():
            raise NoRule
        tape.calls.append((layer, inputs[0].detach(), inputs[0]._version))
        kept: Tensor = _Keep.apply(output, token, tape, layer)  # type: ignore[no-untyped-call]
        return kept

    wanted = {layer: [n for n, p in layer.named_parameters(recurse=False) if p.requires_grad] for layer in layers}
    handles = [layer.register_forward_pre_hook(enter) for layer in layers]
    handles += [layer.register_forward_hook(leave) for layer in layers]
    try:
        with torch.enable_grad():
            total = losses_of(loss, module(x), y, len(x)).sum()
            elsewhere = torch.autograd.grad(total, [token, *trainable], allow_unused=True)[1:] if total.requires_grad else ()
    finally:
        for handle in handles:
            handle.remove()
        for parameter in trainable:
            parameter.requires_grad_(True)
    called = [layer for layer, _, _ in tape.calls]
    if len(set(called)) < len(called) or any(gradient is not None for gradient in elsewhere):
        raise NoRule
    if any(inputs._version != version for _, inputs, version in tape.calls):
        raise NoRule
    pieces: Pieces = {}
    with torch.no_grad():
        for layer, inputs, _ in tape.calls:
            if layer in tape.gradients:
                rules = layers[layer].pieces(layer, inputs, tape.gradients[layer])
                pieces |= {names[layer.get_parameter(name)]: rules[name]() for name in wanted[layer]}
    return pieces


def vectorised(module: nn.Module, layout: Layout, loss: Loss, row: Tensor, x: Tensor, y: Tensor) -> Pieces:
    """`vmap(grad)`: whatever torch can batch, each record as a batch of one."""

    def single(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = torch.func.functional_call(module, parameters, (x.unsqueeze(0),))
        return losses_of(loss, outputs, y.unsqueeze(0), 1).sum()

    each = torch.func.vmap(torch.func.grad(single), (None, 0, 0), randomness="different")
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels have no batching rule
        gradients: dict[str, Tensor] = each(_copies(module, layout, row), x, y)
    return {name: Rows(gradient.detach().float()) for name, gradient in gradients.items()}


def one_by_one(module: nn.Module, layout: Layout, loss: Loss, row: Tensor, x: Tensor, y: Tensor) -> Pieces:
    """Each record alone by autograd: slow, and right by definition."""
    values = _copies(module, layout, row)
    rows = []
    for record in range(len(x)):
        parameters = {name: value.clone().requires_grad_(True) for name, value in values.items()}
        with torch.enable_grad():
            outputs = torch.func.functional_call(module, parameters, (x[record : record + 1],))
            total = losses_of(loss, outputs, y[record : record + 1], 1).sum()
            gradients = (
                torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
                if total.requires_grad
                else [None] * len(parameters)
            )
        rows.append(
            {
                name: torch.zeros(value.shape) if gradient is None else gradient.to_dense().float()
                for (name, value), gradient in zip(values.items(), gradients, strict=True)
            }
        )
    return {name: Rows(torch.stack([row[name] for row in rows])) for name in layout.names}
