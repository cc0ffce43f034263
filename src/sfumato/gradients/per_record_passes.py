"""Three ways to the gradients of single records: one pass with layer rules, `vmap(grad)`, and a loop over the records.

Each takes a private copy of the module, which it may write into, and gives a `Piece` for every parameter that has a
gradient. The loop is the definition: each record alone, by autograd. The other two are faster where they apply.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sfumato.gradients.problem import NoRule, Problem
from sfumato.gradients.record_gradients import Pieces, Rows
from sfumato.gradients.recordwise import gradient_at_outputs, has_own_backward

_FORMATS: dict[type[nn.Module], torch.memory_format] = {
    nn.Conv2d: torch.channels_last,
    nn.Conv3d: torch.channels_last_3d,
}


class Tape:
    """What the ruled layers see in one forward and one backward pass, written down as it happens."""

    def __init__(self, device: torch.device) -> None:
        self.token = torch.zeros((), device=device, requires_grad=True)
        self.calls: list[tuple[nn.Module, Tensor, int]] = []
        self.gradients: dict[nn.Module, Tensor] = {}

    def covered(self) -> bool:
        """No layer was called twice, and no input was overwritten after its layer had read it."""
        unchanged = all(inputs._version == version for _, inputs, version in self.calls)
        return unchanged and len({layer for layer, _, _ in self.calls}) == len(self.calls)


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


def chained(problem: Problem, row: Tensor, x: Tensor, y: Tensor) -> Pieces:
    """One forward and one backward through a chain of layers, without autograd; the layer rules do the rest."""
    layers, chain = problem.layers, problem.chain
    if layers is None or chain is None or not chain.takes(x):
        raise NoRule
    values = problem.layout.split(row.detach()[None])
    pieces: Pieces = {}
    with torch.no_grad():
        way = chain.forward(values, x)
        for link, g, inputs, _ in way.back(gradient_at_outputs(problem.loss, way.outputs, y)):
            rules = layers[link.layer].rule.pieces(link.layer, inputs, g)
            pieces |= {name: rules[own]() for own, (name, _) in layers[link.layer].trained.items()}
    return pieces


def one_pass(problem: Problem, row: Tensor, x: Tensor, y: Tensor) -> Pieces:
    """One forward and one backward for all records; the layer rules do the rest."""
    return _one_pass(problem, row, x, y, {})


def one_pass_channels_last(problem: Problem, row: Tensor, x: Tensor, y: Tensor) -> Pieces:
    """`one_pass` with the weights of convolutions stored channels last, so that they and what follows run faster."""
    return _one_pass(problem, row, x, y, _FORMATS)


def _one_pass(problem: Problem, row: Tensor, x: Tensor, y: Tensor, formats: dict[Any, torch.memory_format]) -> Pieces:
    layers = problem.layers
    if layers is None:
        raise NoRule
    values = problem.layout.split(row.detach())
    trained = []
    for layer, ruled in layers.items():
        for name, parameter in ruled.trained.values():
            value = values[name]
            if type(layer) in formats and value.dim() > 1:
                value = torch.empty_like(value, memory_format=formats[type(layer)]).copy_(value)
            parameter.data = value
            trained.append(parameter)
    tape = Tape(x.device)

    def enter(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        # Hidden from autograd here: a parameter that autograd still reaches has a use that no rule sees.
        with torch._C.DisableTorchFunction():  # what is done here is not for the masks to see, and faster unseen
            for _, parameter in layers[layer].trained.values():
                parameter.requires_grad_(False)

    def leave(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            for _, parameter in layers[layer].trained.values():
                parameter.requires_grad_(True)
            dimensions = layers[layer].rule.dimensions
            if len(inputs) != 1 or len(inputs[0]) != len(x) or (dimensions and dimensions != inputs[0].dim()):
                raise NoRule
            tape.calls.append((layer, inputs[0].detach(), inputs[0]._version))
            kept: Tensor = _Keep.apply(output, tape.token, tape, layer)  # type: ignore[no-untyped-call]
            return kept

    handles = [layer.register_forward_pre_hook(enter) for layer in layers]
    handles += [layer.register_forward_hook(leave) for layer in layers]
    try:
        with torch.enable_grad():
            total = problem.guarded_total(x, y)
            if has_own_backward(total, _Keep):
                raise NoRule
            found = torch.autograd.grad(total, [tape.token, *trained], allow_unused=True) if total.requires_grad else ()
    finally:
        for handle in handles:
            handle.remove()
        for parameter in trained:
            parameter.requires_grad_(True)
    if any(gradient is not None for gradient in found[1:]) or not tape.covered():
        raise NoRule
    pieces: Pieces = {}
    with torch.no_grad():
        for layer, inputs, _ in tape.calls:
            if layer in tape.gradients:
                rules = layers[layer].rule.pieces(layer, inputs, tape.gradients[layer])
                pieces |= {name: rules[own]() for own, (name, _) in layers[layer].trained.items()}
    return pieces


def vectorised(problem: Problem, row: Tensor, x: Tensor, y: Tensor) -> Pieces:
    """`vmap(grad)`: whatever torch can batch, each record as a batch of one."""

    def single(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return problem.total(x.unsqueeze(0), y.unsqueeze(0), parameters)

    each = torch.func.vmap(torch.func.grad(single), (None, 0, 0), randomness="different")
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels of attention have no batching rule
        gradients: dict[str, Tensor] = each(problem.parameters(row), x, y)
    return {name: Rows(gradient.detach().float()) for name, gradient in gradients.items()}


def one_by_one(problem: Problem, row: Tensor, x: Tensor, y: Tensor) -> Pieces:
    """Each record alone by autograd: slow, and right by definition."""
    parameters = {name: value.requires_grad_(True) for name, value in problem.parameters(row).items()}
    rows: dict[str, list[Tensor]] = {name: [] for name in parameters}
    leaves, nothing = list(parameters.values()), [None] * len(parameters)
    for record in range(len(x)):
        with torch.enable_grad():
            total = problem.total(x[record : record + 1], y[record : record + 1], parameters)
            found = torch.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else nothing
        for name, value, gradient in zip(rows, leaves, found, strict=True):
            rows[name].append(
                torch.zeros(value.shape, device=value.device) if gradient is None else gradient.to_dense().float()
            )
    return {name: Rows(torch.stack(gradients)) for name, gradients in rows.items()}
