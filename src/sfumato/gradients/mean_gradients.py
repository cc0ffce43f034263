"""The gradient of each client's mean loss over its own records: through a chain where the module is one, else by autograd."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sfumato.gradients.chain import Chain
from sfumato.gradients.forward import Batch, Parameters
from sfumato.gradients.product import Product
from sfumato.gradients.recordwise import gradient_at_outputs, losses_apart
from sfumato.local.task import Task


def mean_gradients(
    task: Task, chain: Chain | None, parameters: Parameters, batch: Batch, y: torch.Tensor
) -> Sequence[torch.Tensor | Product]:
    """One gradient for each parameter, [clients, *shape], its own to write to; or the product that it is."""
    if chain is not None:
        return _by_chain(task, chain, parameters, batch, y)
    leaves = [value.detach().requires_grad_() for value in parameters.values()]
    outputs = task.forward(dict(zip(parameters, leaves, strict=True)), batch)
    losses, weights = losses_apart(task.loss, outputs, y, batch.width), _weights(batch)
    total = (losses * weights.to(losses)).sum() if isinstance(weights, torch.Tensor) else losses.sum() * weights
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


def _by_chain(
    task: Task, chain: Chain, parameters: Parameters, batch: Batch, y: torch.Tensor
) -> list[torch.Tensor | Product]:
    found: dict[str, torch.Tensor | Product] = {}
    with torch.no_grad():
        way = chain.forward(parameters, batch.x)
        at_outputs = gradient_at_outputs(task.loss, way.outputs, y, _weights(batch), batch.width)
        for link, g, kept, own in way.back(at_outputs):
            found |= {link.names[name]: part for name, part in link.gradients(g, kept, own).items()}
    return [found[name] for name in parameters]


def _weights(batch: Batch) -> torch.Tensor | float:
    """What each place counts in its client's mean: one number if all clients are full, else nothing beyond their own records."""
    if min(batch.counts) == batch.width:
        return 1.0 / batch.width
    own = torch.tensor(batch.counts, dtype=torch.float64)[:, None]
    return ((torch.arange(batch.width) < own) / own).flatten()
