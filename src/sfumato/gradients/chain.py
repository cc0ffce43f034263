"""Forward and backward through a plain chain of layers, written out, without autograd.

Autograd keeps a graph, allocates every gradient anew and hands it over; for small batches that takes as long as the arithmetic.
A chain of linear layers, convolutions, ReLU, tanh, max-pool and flatten needs none of it: the backward pass is the same layers in
reverse, and what a layer with parameters leaves behind is its input and the gradient at its output. From these, local training
forms a mean gradient, and per-record clipping the norm of every record's.

It is the same function and the same gradient as autograd's, up to rounding. One thing is done in another order: a max-pool runs
before the ReLU that it follows. Both are monotone, so max(relu(x)) = relu(max(x)), and their gradients agree too: where the
maximum is positive, both reach the first place that attains it; elsewhere both are zero.

Several clients may go through at once, each with parameters of its own: parameters have the shape [clients, *shape], and the
records come client after client, each client as many. A convolution takes one client only. Every layer treats each record
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from sfumato.gradients.blocked import blocked, fits
from sfumato.gradients.links import (
    ConvolutionLink,
    FlattenLink,
    LinearLink,
    Link,
    Own,
    PatchesLink,
    PoolLink,
    PoolOverLink,
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
    _links: tuple[Link, ...]
    _kept: list[tuple[Any, Own]]

    def back(self, g: Tensor) -> Iterator[tuple[Trained, Tensor, Any, Own]]:
        """For each layer with parameters, last first: the gradient at its output, what it kept, its own parameters.

        `g` is the gradient at the outputs; it may be overwritten.
        """
        first = next(place for place, link in enumerate(self._links) if isinstance(link, Trained))
        for place in range(len(self._links) - 1, first - 1, -1):
            link, (kept, own) = self._links[place], self._kept[place]
            if isinstance(link, Trained):
                yield link, g, kept, own
            if place > first:
                g = link.backward(g, kept, own)


@dataclass(frozen=True)
class Chain:
    """The layers of a module, in the order in which they run."""

    links: tuple[Link, ...]
    blocked: tuple[Link, ...] = ()  # the same in oneDNN's layout, where that pays

    @staticmethod
    def of(module: nn.Module, patches: bool = False) -> Chain | None:
        """The chain that a module is; None if it is anything else. With `patches`, convolutions keep them.

        A chain trains all that it has, no layer or parameter twice, and nobody watches what goes in or out.
        """
        links = list(_links(module, ""))
        if torch_modules._has_any_global_hook():  # type: ignore[no-untyped-call]
            return None
        if None in links or not any(isinstance(link, Trained) for link in links):
            return None
        layers = [link.layer for link in links if link is not None]
        parameters = [p for layer in layers for p in layer.parameters()]
        if len({id(part) for part in (*layers, *parameters)}) < len(layers) + len(parameters):
            return None
        if not all(p.requires_grad and p.numel() and p.dtype == parameters[0].dtype for p in parameters):
            return None
        if {name for link in links if link for name in link.names.values()} != dict(module.named_parameters()).keys():
            return None  # a parameter that belongs to no layer of its kind
        for place, (one, two) in enumerate(pairwise(links)):
            if isinstance(one, ReluLink) and isinstance(two, PoolLink) and not _pads(two.layer):
                links[place], links[place + 1] = two, one
        if isinstance(next(link for link in links if not isinstance(link, FlattenLink)), ReluLink):
            return None  # it would write to the records
        chain = [link for link in links if link is not None]
        for place, (one, two) in enumerate(pairwise(chain)):
            if isinstance(one, ConvolutionLink) and isinstance(two, PoolLink):
                chain[place + 1] = PoolOverLink(two.layer, two.names)
        if patches:
            chain = [PatchesLink(link.layer, link.names) if type(link) is ConvolutionLink else link for link in chain]
        return Chain(tuple(chain))

    @staticmethod
    def for_records(module: nn.Module, x: Tensor, clients: int = 1, batch: int = 1) -> Chain | None:
        """The chain that a module is, if these records of so many clients can go through it, up to `batch` of a client at once."""
        chain = Chain.of(module)
        if chain is None or not chain.takes(x, clients):
            return None
        return replace(chain, blocked=blocked(chain.links, x, batch))

    def takes(self, x: Tensor, clients: int = 1) -> bool:
        """Whether these records of so many clients can go through."""
        dimensions = x.dim()
        for link in self.links:
            if isinstance(link, ConvolutionLink | PoolLink) and (dimensions != 4 or clients > 1):
                return False
            dimensions = 2 if isinstance(link, FlattenLink) else dimensions
        return not torch.is_autocast_enabled(x.device.type)

    def working(self, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of those parameters of one client that layers want laid out in their own way, to be stepped in place of them."""
        links = [] if self.blocked else [link for link in self.links if isinstance(link, ConvolutionLink)]
        return {link.names["weight"]: link.own(model)["weight"][None] for link in links}

    def forward(self, parameters: Mapping[str, Tensor], x: Tensor) -> Pass:
        """Run the layers on parameters [clients, *shape] by the module's names."""
        links = self.blocked if self.blocked and fits(self.blocked, parameters, x) else self.links
        kept: list[tuple[Any, Own]] = []
        for link in links:
            own = link.own(parameters)
            x, saved = link.forward(x, own)
            kept.append((saved, own))
        return Pass(x, links, kept)


def _links(module: nn.Module, name: str) -> Iterator[Link | None]:
    """The links of a module; None for what cannot be a part of a chain."""
    if _watched(module):
        yield None
    elif type(module) is nn.Sequential:
        for own, part in module._modules.items():  # a layer that comes twice is named twice
            yield from _links(part, f"{name}{own}.") if part is not None else (None,)
    elif type(module) in _LINKS and _supported(module):
        yield _LINKS[type(module)](
            module, {own: name + own for own, _ in module.named_parameters() if own in ("weight", "bias")}
        )
    elif type(module) is not nn.Identity:
        yield None


def _supported(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Linear | nn.Conv2d) and not _trains(layer.weight, layer.bias):
        return False
    if isinstance(layer, nn.Conv2d):
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.Flatten):
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return not (isinstance(layer, nn.MaxPool2d) and layer.return_indices)


def _trains(weight: object, bias: object) -> bool:
    return isinstance(weight, nn.Parameter) and (bias is None or isinstance(bias, nn.Parameter))


def _pads(pool: nn.MaxPool2d) -> bool:
    """Whether a window may hold nothing but padding: its maximum is minus infinity, which a ReLU would lift."""
    return pool.padding not in (0, (0, 0)) or pool.dilation not in (1, (1, 1))


def _watched(part: nn.Module) -> bool:
    """Whether somebody looks at what goes in or out, or has put another function in its place."""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    return any(hooks) or "forward" in vars(part)
