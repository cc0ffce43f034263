"""Convolutions in oneDNN's own layout, blocks of 16 channels: from the first of them to the flatten nothing leaves it.

It is the same function and the same gradient as with channels last, up to rounding. Where convolutions are followed by max-pools a
step takes 3 to 15 percent less time; where they are not it may take more, and nothing goes this way.

This layout's max-pool and ReLU turn NaN into a number, and a client whose training has broken must be seen to be broken. So a
batch goes this way only if nothing in it can be infinite or NaN: what a convolution gives, and every partial sum on the way,
is at most (inputs of an output) * (largest weight) * (largest input) + (largest bias), and a max-pool or a ReLU makes it no
larger. On the way back gradients are multiplied and added only, so nothing is swallowed; one that is infinite where a unit was off
is multiplied by zero and becomes NaN, where the other way forgets it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from sfumato.gradients.links import ConvolutionLink, FlattenLink, Link, Own, PoolLink, ReluLink
from sfumato.gradients.patches import operations
from sfumato.gradients.product import Product

_aten: Any = torch.ops.aten
_RECORDS = 32  # in a batch: from here on the layout pays for its calls,
_OPERATIONS = 2**22  # if the largest convolution has so many for each record
_LARGE = 1e30  # far from the largest float32, so that rounding does not matter


class _Convolution(ConvolutionLink):
    """The weight stays as it is: the library lays it out for every call."""

    def own(self, parameters: Mapping[str, Tensor]) -> Own:
        return {name: parameters[full][0] for name, full in self.names.items()}

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        layer, x = self.layer, x if x.is_mkldnn else x.to_mkldnn()
        place = (layer.padding, layer.stride, layer.dilation, layer.groups)
        y: Tensor = _aten.mkldnn_convolution(x, own["weight"], own.get("bias"), *place)
        return y, x

    def gradients(self, g: Tensor, x: Tensor, own: Own) -> dict[str, Tensor | Product]:
        found = self._backward(g, x, own, [False, True, "bias" in own])
        return {name: part[None] for name, part in zip(("weight", "bias"), found, strict=False)}


class _Pool(PoolLink):
    """Only with a gradient in sight does the library note which place was the largest."""

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        with torch.enable_grad():
            y: Tensor = _aten.mkldnn_max_pool2d(x.detach().requires_grad_(), *self._window()).detach()
        return y, (x, y)

    def backward(self, g: Tensor, kept: tuple[Tensor, Tensor], own: Own) -> Tensor:
        x, y = kept
        found: Tensor = _aten.mkldnn_max_pool2d_backward(g, y, x, *self._window())
        return found


class _Relu(ReluLink):
    """In place too: a pool before it needs the places that it noted, not its output."""

    def backward(self, g: Tensor, kept: Tensor, own: Own) -> Tensor:
        found: Tensor = _aten.threshold_backward(g, kept, 0)
        return found


class _Flatten(FlattenLink):
    """Out of the layout, and into it on the way back."""

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Any]:
        x = x.to_dense()
        return x.flatten(1), x.shape

    def backward(self, g: Tensor, kept: Any, own: Own) -> Tensor:
        return g.view(kept).to_mkldnn()


def blocked(links: Sequence[Link], x: Tensor, batch: int) -> tuple[Link, ...]:
    """The same links in oneDNN's layout, if batches of records like these can go through it and will be faster; else nothing."""
    end = next((place for place, link in enumerate(links) if type(link) is FlattenLink), 0)
    inside = [_in_layout(link) for link in links[:end]]
    possible = inside and None not in inside and isinstance(links[0], ConvolutionLink) and _here(x)
    if not possible or not _pools(links) or min(batch, len(x)) < _RECORDS or _most(links[:end], x) < _OPERATIONS:
        return ()
    after: list[Link] = [_Flatten(links[end].layer, links[end].names)]
    if isinstance(links[end - 1], ReluLink):  # on either side of the flatten it is the same; outside it works in place
        after.append(links[end - 1])
        inside.pop()
    return (*(link for link in inside if link is not None), *after, *links[end + 1 :])


def fits(links: Sequence[Link], parameters: Mapping[str, Tensor], x: Tensor) -> bool:
    """Whether a batch is large enough, and it is proven that nothing on its way to the flatten will be infinite or NaN."""
    if len(x) < _RECORDS / 2:  # the last of an epoch may be smaller than the others
        return False
    return all(bound < _LARGE for bound in bounds(links, parameters, x))  # NaN is not


def bounds(links: Sequence[Link], parameters: Mapping[str, Tensor], x: Tensor) -> Iterator[float]:
    """What no number exceeds: of the records, and of what each convolution gives. Infinite or NaN if one of them is."""
    bound = _largest(x)
    yield bound
    for link in links:
        if isinstance(link, _Convolution):
            own = link.own(parameters)
            bound *= own["weight"][0].numel() * _largest(own["weight"])
            bound += _largest(own["bias"]) if "bias" in own else 0.0
            yield bound


def _largest(values: Tensor) -> float:
    low, high = map(float, torch.aminmax(values.detach()))  # both are NaN if one of the values is
    return max(-low, high)


def _here(x: Tensor) -> bool:
    """Whether this machine has the layout, and it was measured on its like."""
    library: Any = torch.backends.mkldnn
    there = library.is_available() and library.enabled and torch.backends.cpu.get_cpu_capability() == "AVX512"
    plain = type(x) is Tensor and x.device.type == "cpu" and x.dtype == torch.float32
    return there and plain and not torch.is_inference_mode_enabled()


def _pools(links: Sequence[Link]) -> bool:
    """Whether a max-pool follows each convolution, or each but the last."""
    pools = [isinstance(two, PoolLink) for one, two in pairwise(links) if isinstance(one, ConvolutionLink)]
    return any(pools) and all(pools[:-1])


def _most(links: Sequence[Link], x: Tensor) -> float:
    """The operations per record of the largest convolution."""
    places, most = float(math.prod(x.shape[2:])), 0.0
    for link in links:
        if isinstance(link, ConvolutionLink):
            most = max(most, operations(link.layer, places))
        if isinstance(link, ConvolutionLink | PoolLink):
            stride = link.layer.stride
            places /= stride**2 if isinstance(stride, int) else math.prod(stride)
    return most


def _in_layout(link: Link) -> Link | None:
    if isinstance(link, ConvolutionLink) and link.layer.groups == 1 and not link.misread:
        return _Convolution(link.layer, link.names)
    if isinstance(link, PoolLink) and not link.layer.ceil_mode and link.layer.padding in (0, (0, 0)):
        return _Pool(link.layer, link.names) if link.layer.dilation in (1, (1, 1)) else None
    return _Relu(link.layer, link.names) if isinstance(link, ReluLink) else None
