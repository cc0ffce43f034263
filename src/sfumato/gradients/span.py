"""A first linear layer that is trained in the span of its client's records, where that takes less arithmetic.

Every step of gradient descent, with or without momentum, adds a sum of products g_i x_i^T to the weight of the first layer:
x_i are the records of the batch, g_i the gradients at the layer's output. So the weight is always W = W_0 + A X, with X
[records, in] the client's records and A [out, records] what each record has added; and the layer's output at record j is

    W x_j = W_0 x_j + A (X x_j).

W_0 x_j and the products X X^T of records with each other are computed once. A step then touches A alone: it adds g_i to column i.
A bias is the weight of an input that is 1 everywhere. It is the same function and the same step as in the weight itself, up to
rounding; for 5 epochs over 50 records of 784 numbers and 200 units it is less than a third of the arithmetic.

Only for steps that are linear in the gradient: weight decay would scale W_0 as well, and a penalty, a projection or a
sharpness-aware step measures the length of W - W_0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sfumato.gradients.chain import Chain
from sfumato.gradients.links import FlattenLink, LinearLink, Link, Own, Trained
from sfumato.gradients.product import Product
from sfumato.update import Layout


class SpanLink(Trained):
    """The first layer, on rows that say which record it is, what its products with all records are, and its first output."""

    def forward(self, x: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        """W_0 x_j + A (X x_j)."""
        clients, out, records = own["weight"].shape  # the weight is A
        x = x.view(clients, -1, 2 * records + out)
        which, products, first = torch.split(x, [records, records, out], dim=2)
        return torch.baddbmm(first, products, own["weight"].transpose(1, 2)).view(-1, out), which

    def gradients(self, g: Tensor, x: Tensor, own: Own) -> dict[str, Tensor | Product]:
        """What a step adds to A: g_i to column i."""
        return {"weight": Product(g.view(*x.shape[:2], -1), x)}


@dataclass(frozen=True)
class Span:
    """Clients that begin at the global parameters, in the span of their records."""

    chain: Chain  # with a SpanLink in place of the first layer
    x: Tensor  # what goes in: a row for each record, client after client
    start: dict[str, Tensor]  # the parameters to step: A in place of the first weight, and no first bias
    records: Tensor  # X, [clients, records, in]
    names: Mapping[str, str]  # of the first layer's parameters

    @staticmethod
    @torch.no_grad()
    def of(chain: Chain, layout: Layout, params: Tensor, starts: Tensor, clients: Sequence[Tensor]) -> Span:
        """The span of clients for which it has a width. Their first layers begin at `params`, the others at `starts`."""
        layer = _first(chain)
        flat = [_flat(chain, own) for own in clients]
        sizes = [len(x) for x in flat]
        records = torch.stack(flat) if len(set(sizes)) == 1 else pad_sequence(flat, batch_first=True)
        products = torch.bmm(records, records.transpose(1, 2))
        origin, weight = layout.split(params), layer.names["weight"]
        first = records @ origin[weight].T
        if "bias" in layer.names:
            products += 1.0
            first += origin[layer.names["bias"]]
        which = torch.eye(max(sizes), dtype=first.dtype, device=first.device).expand_as(products)
        rows = torch.cat([which, products, first], dim=2)
        rest = layout.split(starts)
        start = {weight: torch.zeros_like(first).transpose(1, 2)} | {
            name: value for name, value in rest.items() if name not in layer.names.values()
        }
        after = chain.links[chain.links.index(layer) + 1 :]
        return Span(
            Chain((SpanLink(layer.layer, {"weight": weight}), *after)),
            torch.cat([own[:size] for own, size in zip(rows, sizes, strict=True)]),
            start,
            records,
            layer.names,
        )

    @torch.no_grad()
    def write(self, model: Mapping[str, Tensor], views: Mapping[str, Tensor]) -> None:
        """How far the first layer has moved."""
        moved = model[self.names["weight"]]
        torch.bmm(moved, self.records, out=views[self.names["weight"]])
        if "bias" in self.names:
            torch.sum(moved, 2, out=views[self.names["bias"]])


def span_width(chain: Chain, x: Tensor, visits: int) -> int:
    """The size of a client's span, rounded up to 64, 256, 1024 and so on; 0 if it is better trained in the weight.

    It depends on this client alone: no client decides how another is trained. Those of one width train side by side, padded to
    the largest of them. A record that is not finite, or whose square is not, would reach into the outputs of the others.
    """
    layer, records = _first(chain), len(x)
    if not isinstance(layer, LinearLink) or _flat(chain, x).dim() != 2:
        return 0
    numbers = x.detach().reshape(-1)
    if not pays(layer.layer.weight.shape, records, visits) or not math.isfinite(float(numbers @ numbers)):
        return 0
    width = 64
    while width < records:
        width *= 4
    return width


def pays(weight: torch.Size, records: int, visits: int) -> bool:
    """Whether so many visits to a client's records take fewer products in their span than in the weight.

    >>> pays(torch.Size([200, 784]), 50, 250), pays(torch.Size([200, 784]), 50, 50)
    (True, False)
    """
    out, inside = weight
    once = records * inside * (2 * out + records)
    return once + 2 * visits * records * out < 2 * visits * inside * out


def _first(chain: Chain) -> Link:
    """The first layer that does something."""
    return next(link for link in chain.links if not isinstance(link, FlattenLink))


def _flat(chain: Chain, x: Tensor) -> Tensor:
    """The records as they reach it."""
    return x.flatten(1) if isinstance(chain.links[0], FlattenLink) else x
