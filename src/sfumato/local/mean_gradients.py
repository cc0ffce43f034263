"""The gradient of each client's mean loss over its own records: through a chain where the module is one, else by autograd."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sfumato.local.chain import Chain, Product
from sfumato.local.forward import Batch, Parameters
from sfumato.local.recordwise import losses_apart
from sfumato.local.task import Task


def mean_gradients(
    task: Task, chain: Chain | None, parameters: Parameters, batch: Batch, y: torch.Tensor
) -> Sequence[torch.Tensor | Product]:
    """One gradient for each parameter, [clients, *shape], its own to write to; or the product that it is."""
    if chain is not None:
        return _by_chain(task, chain, parameters, batch, y)
    leaves = [value.detach().requires_grad_() for value in parameters.values()]
    outputs = task.forward(dict(zip(parameters, leaves, strict=True)), batch)
    found = torch.autograd.grad(_total(task, outputs, batch, y), leaves, allow_unused=True)
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


def written_out(gradients: Sequence[torch.Tensor | Product]) -> list[torch.Tensor]:
    """The gradients as tensors, whatever they are."""
    return [gradient.full() if isinstance(gradient, Product) else gradient for gradient in gradients]


def _by_chain(
    task: Task, chain: Chain, parameters: Parameters, batch: Batch, y: torch.Tensor
) -> list[torch.Tensor | Product]:
    found: dict[str, torch.Tensor | Product] = {}
    with torch.no_grad():
        way = chain.forward(parameters, batch.x)
        for link, g, kept, own in way.back(lambda outputs: _total(task, outputs, batch, y)):
            found |= {link.names[name]: part for name, part in link.gradients(g, kept, own).items()}
    return [found[name] for name in parameters]


def _total(task: Task, outputs: torch.Tensor, batch: Batch, y: torch.Tensor) -> torch.Tensor:
    """The sum of the clients' mean losses."""
    losses = losses_apart(task.loss, outputs, y, batch.width)
    if min(batch.counts) == batch.width:
        return losses.sum() / batch.width
    return (losses * _weights(batch.counts).to(losses)).sum()


def _weights(counts: tuple[int, ...]) -> torch.Tensor:
    """What each place counts in its client's mean: nothing beyond the client's own records."""
    own = torch.tensor(counts, dtype=torch.float64)[:, None]
    return ((torch.arange(max(counts)) < own) / own).flatten()
