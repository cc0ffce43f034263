"""The gradient of each client's mean loss over its own records: through a chain where the module is one, else by autograd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sfumato.gradients.chain import Chain
from sfumato.gradients.forward import Batch, OneByOne, Parameters, Stacked
from sfumato.gradients.product import Product
from sfumato.gradients.recordwise import LossPerRecord, gradient_at_outputs, losses_apart
from sfumato.gradients.span import Span, span_width
from sfumato.update import Layout


@dataclass(frozen=True)
class MeanGradients:
    """What a step of local training moves along, for one client or for several at once, each with parameters of its own.

    A client's gradient depends on its own records and parameters only, whoever shares the call.
    """

    forward: Stacked | OneByOne
    loss: LossPerRecord
    chain: Chain | None = None

    @staticmethod
    def of(forward: Stacked | OneByOne, loss: LossPerRecord, x: Tensor, clients: int = 1) -> MeanGradients:
        """Without autograd, if records like these of so many clients can go through the module as a chain."""
        chain = Chain.of(forward.module)
        return MeanGradients(forward, loss, chain if chain is not None and chain.takes(x, clients) else None)

    def __call__(self, parameters: Parameters, batch: Batch, y: Tensor) -> Sequence[Tensor | Product]:
        """One gradient for each parameter, [clients, *shape], its own to write to; or the product that it is."""
        if self.chain is not None:
            return self._by_chain(self.chain, parameters, batch, y)
        leaves = [value.detach().requires_grad_() for value in parameters.values()]
        outputs = self.forward(dict(zip(parameters, leaves, strict=True)), batch)
        losses, weights = losses_apart(self.loss, outputs, y, batch.width), _weights(batch)
        total = (losses * weights.to(losses)).sum() if isinstance(weights, Tensor) else losses.sum() * weights
        found = torch.autograd.grad(total, leaves, allow_unused=True)
        places: set[int] = set()
        gradients = []
        for leaf, gradient in zip(leaves, found, strict=True):
            if gradient is None:
                gradient = torch.zeros_like(leaf)
            elif not gradient.is_contiguous() or gradient.untyped_storage().data_ptr() in places:
                gradient = gradient.clone(memory_format=torch.contiguous_format)
            places.add(gradient.untyped_storage().data_ptr())
            gradients.append(gradient)
        return gradients

    def span_width(self, x: Tensor, visits: int) -> int:
        """The width of the span in which a client's first layer is better trained; 0 for none. See `span`."""
        return 0 if self.chain is None else span_width(self.chain, x, visits)

    def in_span(
        self, layout: Layout, params: Tensor, starts: Tensor, clients: Sequence[Tensor]
    ) -> tuple[MeanGradients, Span]:
        """The same in the span of these clients' records, for which it has a width."""
        assert self.chain is not None, "no span has a width"
        span = Span.of(self.chain, layout, params, starts, clients)
        return replace(self, chain=span.chain), span

    def _by_chain(self, chain: Chain, parameters: Parameters, batch: Batch, y: Tensor) -> list[Tensor | Product]:
        found: dict[str, Tensor | Product] = {}
        with torch.no_grad():
            way = chain.forward(parameters, batch.x)
            at_outputs = gradient_at_outputs(self.loss, way.outputs, y, _weights(batch), batch.width)
            for link, g, kept, own in way.back(at_outputs):
                found |= {link.names[name]: part for name, part in link.gradients(g, kept, own).items()}
        return [found[name] for name in parameters]


def _weights(batch: Batch) -> Tensor | float:
    """What each place counts in its client's mean: one number if all clients are full, else nothing beyond their own records."""
    if min(batch.counts) == batch.width:
        return 1.0 / batch.width
    own = torch.tensor(batch.counts, dtype=torch.float64, device=batch.x.device)[:, None]
    return ((torch.arange(batch.width, device=batch.x.device) < own) / own).flatten()
