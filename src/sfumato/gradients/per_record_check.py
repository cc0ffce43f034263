"""Modules and losses in which one record reaches another are refused: a clip per record would bound nothing there."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from sfumato.errors import BadValue, UnsoundRound
from sfumato.gradients.masks import KeyedMasks
from sfumato.gradients.recordwise import LossPerRecord, losses_of
from sfumato.key import Key


def refuse_batch_statistics(module: nn.Module) -> None:
    """Refuse BatchNorm that normalises by the batch; in evaluation, with frozen statistics, it is an affine map."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and (layer.training or layer.running_mean is None):
            raise UnsoundRound(
                f"layer {name!r} ({type(layer).__name__}) normalises by the statistics of the batch: a record's gradient depends "
                "on the other records, so clipping it does not bound what one record changes.",
                f"replace it by GroupNorm, or call .eval() on {name!r} to keep its statistics fixed.",
            )


def check_records_do_not_mix(module: nn.Module, loss: LossPerRecord, x: Tensor, y: Tensor) -> None:
    """Refuse a module or a loss in which the loss of one record changes with another record.

    BatchNorm is known by its type. For the rest every second record is replaced by its neighbour, and the losses of the
    others must stay as they were. This finds mixing on these examples; a branch that they do not take stays unseen.
    """
    refuse_batch_statistics(module)
    if len(x) < 2 or len(x) != len(y):
        raise BadValue(f"{len(x)} records with {len(y)} targets: at least two are needed, and one target for each.")

    def losses(order: Tensor) -> Tensor:
        with torch.no_grad(), KeyedMasks(Key.from_seed(0).generator()):  # the same masks each time
            return losses_of(loss, copy.deepcopy(module)(x[order]), y[order], len(x))

    every = torch.arange(len(x), device=x.device)
    before = losses(every)
    for parity in (0, 1):
        kept = every % 2 == parity
        after = losses(torch.where(kept, every, every.roll(1)))
        if not torch.allclose(before[kept], after[kept], rtol=1e-6, atol=1e-7, equal_nan=True):
            worst = (before - after)[kept].abs().nan_to_num(float("inf")).max().item()
            raise UnsoundRound(
                f"{type(module).__name__} or its loss mixes records: a record's loss changed by {worst:.2g} when only others "
                "changed, so clipping its gradient does not bound what one record changes.",
                "let layers and loss work on each record alone, e.g. GroupNorm(groups, channels) in place of batch statistics.",
            )
