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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_modules

from sfumato.local.patches import Patches, small
from sfumato.norms import norms_from_above

Own = dict[str, Tensor]  # the parameters of one layer
_aten: Any = torch.ops.aten


@dataclass(frozen=True)
class Product:
    """The gradient of a linear layer's weight as its factors: g [clients, records, out] and x [clients, records, in].

    Written out it is as large as the weight, and a step reads it again; a large layer spends more time on that than on the
    product itself. `descend` does both at once.
    """

    g: Tensor
    x: Tensor

    def full(self) -> Tensor:
        """g^T x, [clients, out, in]."""
        return torch.bmm(self.g.transpose(1, 2), self.x)

    def squares(self) -> Tensor:
        """The squared norm for each client, float64: the sum over records i, j of (g_i . g_j)(x_i . x_j), if they are few."""
        (_, records, out), inside = self.g.shape, self.x.shape[2]
        if records * (inside + out) > inside * out:
            return norms_from_above(self.full().flatten(1)).square()
        g, x = self.g.double(), self.x.double()
        return (torch.bmm(g, g.transpose(1, 2)) * torch.bmm(x, x.transpose(1, 2))).sum((1, 2)).clamp(min=0.0)

    def added_to(self, weight: Tensor, factors: Tensor) -> Tensor:
        """weight + factor g^T x, one factor for each client, as a new tensor."""
        if len(weight) == 1:
            return torch.addmm(weight[0], self.g[0].T, self.x[0], alpha=float(factors))[None]
        return torch.baddbmm(weight, (self.g * factors.to(self.g)[:, None, None]).transpose(1, 2), self.x)

    def descend(self, weight: Tensor, lr: float, keep: float) -> None:
        """weight <- keep * weight - lr g^T x, in place."""
        if len(weight) == 1:
            weight[0].addmm_(self.g[0].T, self.x[0], beta=keep, alpha=-lr)
        else:
            weight.baddbmm_(self.g.transpose(1, 2), self.x, beta=keep, alpha=-lr)


def written_out(gradients: Sequence[Tensor | Product]) -> list[Tensor]:
    """The gradients as tensors, whatever they are."""
    return [gradient.full() if isinstance(gradient, Product) else gradient for gradient in gradients]


@dataclass(frozen=True)
class Link:
    """One layer. Its backward pass gets what its forward pass kept."""

    layer: Any
    names: Mapping[str, str]  # from the layer's own names of its parameters to the module's

    def own(self, parameters: Mapping[str, Tensor]) -> Own:
        """The layer's parameters under its own names, as its passes want them."""
        return {own: parameters[name] for own, name in self.names.items()}

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Any]:
        """What comes out, and what to keep."""
        raise NotImplementedError

    def backward(self, g: Tensor, kept: Any, own: Own) -> Tensor:
        """From the gradient at the output to the one at the input."""
        raise NotImplementedError


class Trained(Link):
    """A layer with parameters. It keeps its input."""

    def gradients(self, g: Tensor, x: Tensor, own: Own) -> dict[str, Tensor | Product]:
        """The gradients of its parameters, [clients, *shape], under its own names."""
        raise NotImplementedError


class _Linear(Trained):
    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        weight, bias = own["weight"], own.get("bias")
        columns = x.reshape(len(weight), -1, x.shape[-1]).transpose(1, 2)  # the product with the weight first is faster
        y = torch.bmm(weight, columns) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, columns)
        return y.transpose(1, 2).reshape(*x.shape[:-1], weight.shape[1]), x

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        weight = own["weight"]
        return torch.bmm(g.reshape(len(weight), -1, weight.shape[1]), weight).view(kept.shape)

    def gradients(self, g: Tensor, x: Tensor, own: Own) -> dict[str, Tensor | Product]:
        clients = len(own["weight"])
        g, x = g.reshape(clients, -1, g.shape[-1]), x.reshape(clients, -1, x.shape[-1])
        return {"weight": Product(g, x), "bias": g.sum(1)} if "bias" in own else {"weight": Product(g, x)}


class _Convolution(Trained):
    """Channels last, the faster way. The weight decides, as a copy: one of a single channel counts as both until it is copied."""

    def own(self, parameters: Mapping[str, Tensor]) -> Own:
        own = {name: value[0] for name, value in super().own(parameters).items()}
        return own | {"weight": own["weight"].clone(memory_format=torch.channels_last)}

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        layer, x = self.layer, x.contiguous(memory_format=torch.channels_last)
        return F.conv2d(x, own["weight"], own.get("bias"), layer.stride, layer.padding, layer.dilation, layer.groups), x

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        (found,) = self._backward(g, kept, own, [True, False, False])
        return found

    def gradients(self, g: Tensor, x: Tensor, own: Own) -> dict[str, Tensor | Product]:
        found = self._backward(g, x, own, [False, True, "bias" in own])
        return {name: part[None].contiguous() for name, part in zip(("weight", "bias"), found, strict=False)}

    def _backward(self, g: Tensor, x: Tensor, own: Own, wanted: list[bool]) -> list[Tensor]:
        layer = self.layer
        place = (layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups)
        found = _aten.convolution_backward(g, x, own["weight"], [layer.out_channels], *place, wanted)
        return [part for part, asked in zip(found, wanted, strict=True) if asked]


class _ConvolutionByPatches(_Convolution):
    """For those who need the patches anyway: a small convolution is the product with them. It keeps what it used."""

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Any]:
        if not small(self.layer, x):
            return super().forward(x, own)
        patches = Patches.of(self.layer, x)
        return patches.convolved(own["weight"], own.get("bias")), patches

    def backward(self, g: Tensor, kept: Any, own: Own) -> Tensor:
        return super().backward(g, kept.image if isinstance(kept, Patches) else kept, own)


class _Relu(Link):
    """In place: what comes before it is new, and its output is kept by nobody, or by a tanh to which zeros make no difference."""

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        return x.relu_(), x

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        _aten.threshold_backward.grad_input(g, kept, 0, grad_input=g)
        return g


class _Tanh(Link):
    """Not in place: what it keeps must stay as it is, and what it meets may be another's output."""

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        y = x.tanh()
        return y, y

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        _aten.tanh_backward.grad_input(g, kept, grad_input=g)
        return g


class _MaxPool(Link):
    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, places = _aten.max_pool2d_with_indices(x, *self._window())
        return y, (x, places)

    def backward(self, g: Tensor, kept: tuple[Tensor, Tensor], own: Own) -> Tensor:
        x, places = kept
        found: Tensor = _aten.max_pool2d_with_indices_backward(g, x, *self._window(), places)
        return found

    def _window(self) -> tuple[Any, ...]:
        layer = self.layer
        sides = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        return (*((side, side) if isinstance(side, int) else side for side in sides), layer.ceil_mode)


class _Flatten(Link):
    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        return x.flatten(1), x

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        return g.view(kept.shape).contiguous(
            memory_format=torch.channels_last if kept.dim() == 4 else torch.contiguous_format
        )


_LINKS: dict[type[nn.Module], type[Link]] = {
    nn.Linear: _Linear,
    nn.Conv2d: _Convolution,
    nn.ReLU: _Relu,
    nn.Tanh: _Tanh,
    nn.MaxPool2d: _MaxPool,
    nn.Flatten: _Flatten,
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
            if isinstance(one, _Relu) and isinstance(two, _MaxPool) and not _pads(two.layer):
                links[place], links[place + 1] = two, one
        if isinstance(next(link for link in links if not isinstance(link, _Flatten)), _Relu):
            return None  # it would write to the records
        chain = [link for link in links if link is not None]
        if patches:
            chain = [
                _ConvolutionByPatches(link.layer, link.names) if type(link) is _Convolution else link for link in chain
            ]
        return Chain(tuple(chain))

    @staticmethod
    def for_records(module: nn.Module, x: Tensor, clients: int = 1) -> Chain | None:
        """The chain that a module is, if these records of so many clients can go through it."""
        chain = Chain.of(module)
        return chain if chain is not None and chain.takes(x, clients) else None

    def takes(self, x: Tensor, clients: int = 1) -> bool:
        """Whether these records of so many clients can go through."""
        dimensions = x.dim()
        for link in self.links:
            if isinstance(link, _Convolution | _MaxPool) and (dimensions != 4 or clients > 1):
                return False
            dimensions = 2 if isinstance(link, _Flatten) else dimensions
        return not torch.is_autocast_enabled(x.device.type)

    def forward(self, parameters: Mapping[str, Tensor], x: Tensor) -> Pass:
        """Run the layers on parameters [clients, *shape] by the module's names."""
        kept: list[tuple[Any, Own]] = []
        for link in self.links:
            own = link.own(parameters)
            x, saved = link.forward(x, own)
            kept.append((saved, own))
        return Pass(x, self.links, kept)


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
