"""Forward and backward through a plain chain of layers, written out, without autograd.

Autograd keeps a graph, allocates every gradient anew and hands it over; for small batches that takes as long as the arithmetic.
A chain of linear layers, convolutions, ReLU, tanh, max-pool and flatten needs none of it: the backward pass is the same layers in
reverse, and what a layer with parameters leaves behind is its input and the gradient at its output. From these, local training
forms a mean gradient, and per-record clipping the norm of every record's.

It is the same function and the same gradient as autograd's, up to rounding.

Several clients may go through at once, each with parameters of its own: parameters have the shape [clients, *shape], and the
records come client after client, each client as many. A convolution takes one client only. Every layer treats each record
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from sfumato.gradients.links import (
    ConvolutionLink,
    FlattenLink,
    LinearLink,
    Link,
    Own,
    PoolLink,
    ReluLink,
    TanhLink,
    Trained,
)

_LINKS: dict[type[nn.Module], type[Link]] = {
    nn.Linear: LinearLink,
    nn.Conv2d: ConvolutionLink,
    nn.ReLU: ReluLink,
    nn.Tanh: TanhLink,
    nn.MaxPool2d: PoolLink,
    nn.Flatten: FlattenLink,
}


@dataclass(frozen=True)
class Pass:
    """A forward pass, and the way back."""

    outputs: Tensor
    steps: tuple[tuple[Link, Any, Own], ...]  # each layer, what it kept, its own parameters

    def back(self, g: Tensor) -> Iterator[tuple[Trained, Tensor, Any, Own]]:
        """For each layer with parameters, last first: the gradient at its output, what it kept, its own parameters.

        `g` is the gradient at the outputs; it may be overwritten.
        """
        first = next(place for place, (link, *_) in enumerate(self.steps) if isinstance(link, Trained))
        for place in range(len(self.steps) - 1, first - 1, -1):
            link, kept, own = self.steps[place]
            if isinstance(link, Trained):
                yield link, g, kept, own
            if place > first:
                g = link.backward(g, kept, own)


@dataclass(frozen=True)
class Chain:
    """The layers of a module, in the order in which they run."""

    links: tuple[Link, ...]

    @staticmethod
    def of(module: nn.Module) -> Chain | None:
        """The chain that a module is; None if it is anything else.

        A chain trains all that it has, no layer or parameter twice, and nobody watches what goes in or out.
        """
        found = list(_links(module, ""))
        links = [link for link in found if link is not None]
        watched = torch_modules._has_any_global_hook()  # type: ignore[no-untyped-call]
        if watched or len(links) < len(found) or not _trains_all_once(module, links):
            return None
        first = next(link for link in links if not isinstance(link, FlattenLink))
        return None if isinstance(first, ReluLink) else Chain(tuple(links))  # a ReLU would write to the records

    def takes(self, x: Tensor, clients: int = 1) -> bool:
        """Whether these records of so many clients can go through."""
        dimensions = x.dim()
        for link in self.links:
            if isinstance(link, ConvolutionLink | PoolLink) and (dimensions != 4 or clients > 1):
                return False
            dimensions = 2 if isinstance(link, FlattenLink) else dimensions
        kind = x.device.type
        return not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind))

    def forward(self, parameters: Mapping[str, Tensor], x: Tensor) -> Pass:
        """Run the layers on parameters [clients, *shape] by the module's names."""
        steps: list[tuple[Link, Any, Own]] = []
        for link in self.links:
            own = link.own(parameters)
            x, kept = link.forward(x, own)
            steps.append((link, kept, own))
        return Pass(x, tuple(steps))


def _trains_all_once(module: nn.Module, links: Sequence[Link]) -> bool:
    """Whether these links train every parameter of the module, all of one type, and no layer or parameter comes twice."""
    layers = [link.layer for link in links]
    parameters = [p for layer in layers for p in layer.parameters()]
    if not parameters or len({id(part) for part in (*layers, *parameters)}) < len(layers) + len(parameters):
        return False
    if not all(p.requires_grad and p.numel() and p.dtype == parameters[0].dtype for p in parameters):
        return False
    return {name for link in links for name in link.names.values()} == dict(module.named_parameters()).keys()


def _links(module: nn.Module, name: str) -> Iterator[Link | None]:
    """The links of a module; None for what cannot be a part of a chain."""
    if _watched(module):
        yield None
    elif type(module) is nn.Sequential:
        for own, part in module._modules.items():  # a layer that comes twice is named twice
            yield from _links(part, f"{name}{own}.") if part is not None else (None,)
    elif type(module) in _LINKS and _supported(module):
        names = {own: name + own for own, _ in module.named_parameters() if own in ("weight", "bias")}
        yield _LINKS[type(module)](module, names)
    elif type(module) is not nn.Identity:
        yield None


def _supported(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Linear | nn.Conv2d):
        trains = isinstance(layer.weight, nn.Parameter) and isinstance(layer.bias, nn.Parameter | None)
        zeros = isinstance(layer, nn.Linear) or (layer.padding_mode == "zeros" and not isinstance(layer.padding, str))
        return trains and zeros
    if isinstance(layer, nn.Flatten):
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return not (isinstance(layer, nn.MaxPool2d) and layer.return_indices)


def _watched(part: nn.Module) -> bool:
    """Whether somebody looks at what goes in or out, or has put another function in its place."""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    return any(hooks) or "forward" in vars(part)
