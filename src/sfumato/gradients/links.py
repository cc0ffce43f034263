"""The layers of a chain, each with its forward and its backward pass written out. Every layer treats each record alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.gradients.channels_last import channels_first, misread
from sfumato.gradients.product import Product

Own = dict[str, Tensor]  # the parameters of one layer
_aten: Any = torch.ops.aten


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


class LinearLink(Trained):
    """One batched product for all clients."""

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        weight, bias = own["weight"], own.get("bias")
        columns = x.reshape(len(weight), -1, x.shape[-1]).transpose(1, 2)  # the product with the weight first is faster
        y = torch.bmm(weight, columns) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, columns)
        return y.transpose(1, 2).reshape(*x.shape[:-1], weight.shape[1]).contiguous(), x

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        weight = own["weight"]
        return torch.bmm(g.reshape(len(weight), -1, weight.shape[1]), weight).view(kept.shape)

    def gradients(self, g: Tensor, x: Tensor, own: Own) -> dict[str, Tensor | Product]:
        clients = len(own["weight"])
        g, x = g.reshape(clients, -1, g.shape[-1]), x.reshape(clients, -1, x.shape[-1])
        return {"weight": Product(g, x), "bias": g.sum(1)} if "bias" in own else {"weight": Product(g, x)}


class ConvolutionLink(Trained):
    """Channels last, the faster way. The weight decides, as a copy: one of a single channel counts as both until it is copied."""

    def own(self, parameters: Mapping[str, Tensor]) -> Own:
        own = {name: value[0] for name, value in super().own(parameters).items()}
        _, inside, height, width = own["weight"].shape
        if self.misread:
            own["weight"] = channels_first(own["weight"])
        elif own["weight"].stride() != (inside * height * width, 1, inside * width, inside):
            own["weight"] = own["weight"].clone(memory_format=torch.channels_last)
        return own

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        layer = self.layer
        x = channels_first(x) if self.misread else x.contiguous(memory_format=torch.channels_last)
        return F.conv2d(x, own["weight"], own.get("bias"), layer.stride, layer.padding, layer.dilation, layer.groups), x

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        return self._backward(g, kept, own, 0)

    def gradients(self, g: Tensor, x: Tensor, own: Own) -> dict[str, Tensor | Product]:
        found: dict[str, Tensor | Product] = {"weight": self._backward(g, x, own, 1)[None]}
        if "bias" in own:
            found["bias"] = g.sum((0, 2, 3))[None]  # faster than asking for both at once
        return found

    @property
    def misread(self) -> bool:
        layer = self.layer
        return misread(layer.weight, layer.stride, layer.dilation, layer.groups)

    def _backward(self, g: Tensor, x: Tensor, own: Own, wanted: int) -> Tensor:
        layer = self.layer
        place = (layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups)
        asked = [part == wanted for part in range(3)]  # the gradient of the input, of the weight or of the bias
        found: Tensor = _aten.convolution_backward(g, x, own["weight"], [layer.out_channels], *place, asked)[wanted]
        return found


class ReluLink(Link):
    """In place: what comes before it is new, and its output is kept by nobody, or by a tanh to which zeros make no difference."""

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        return x.relu_(), x

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        _aten.threshold_backward.grad_input(g, kept, 0, grad_input=g)
        return g


class TanhLink(Link):
    """Not in place: what it keeps must stay as it is, and what it meets may be another's output."""

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        y = x.tanh()
        return y, y

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        _aten.tanh_backward.grad_input(g, kept, grad_input=g)
        return g


class PoolLink(Link):
    """It keeps which place was the largest."""

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


class FlattenLink(Link):
    """Channels first for what follows, channels last again on the way back."""

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        return x.flatten(1), x

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        memory_format = torch.channels_last if kept.dim() == 4 else torch.contiguous_format
        return g.view(kept.shape).contiguous(memory_format=memory_format)
