"""What the ways to the gradients of single records are asked: a private copy of a module, a loss, and the layers with rules."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from sfumato.gradients.chain import Chain
from sfumato.gradients.forward import called
from sfumato.gradients.layer_rules import Rule, rule_for
from sfumato.gradients.masks import KeyedMasks
from sfumato.gradients.recordwise import LossPerRecord, MixesRecords, RecordWise, losses_apart, losses_of
from sfumato.update import Layout


class NoRule(Exception):
    """The layer rules do not cover what the module did with this batch."""


@dataclass(frozen=True)
class Ruled:
    """A layer with a rule: what it trains, by its own name, and that parameter's name in the module."""

    rule: Rule
    trained: dict[str, tuple[str, nn.Parameter]]


def ruled_layers(module: nn.Module) -> dict[nn.Module, Ruled] | None:
    """The layers that own trainable parameters, if a rule covers each and no parameter has two owners; else None."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    layers: dict[nn.Module, Ruled] = {}
    owned: set[nn.Parameter] = set()
    for layer in module.modules():
        own = {name: p for name, p in layer.named_parameters(recurse=False, remove_duplicate=False) if p.requires_grad}
        if own:
            rule = rule_for(layer)
            if rule is None or not own.keys() <= {"weight", "bias"} or owned & set(own.values()):
                return None
            if any(p.dtype != torch.float32 for p in own.values()):
                return None
            owned |= set(own.values())
            layers[layer] = Ruled(rule, {name: (names[p], p) for name, p in own.items()})
    return layers


@dataclass(frozen=True)
class Problem:
    """A private copy of the module, what is asked of it, and its layers if rules cover them."""

    module: nn.Module
    layout: Layout
    loss: LossPerRecord
    masks: KeyedMasks | nullcontext[None] = field(default_factory=nullcontext)
    layers: dict[nn.Module, Ruled] | None = None
    chain: Chain | None = None

    @staticmethod
    def of(module: nn.Module, layout: Layout, loss: LossPerRecord) -> Problem:
        return Problem(module, layout, loss, layers=ruled_layers(module), chain=Chain.of(module))

    def total(self, x: Tensor, y: Tensor, parameters: dict[str, Tensor] | None = None) -> Tensor:
        """The sum of the records' losses, with dropout by the masks."""
        with self.masks:
            outputs = called(self.module, parameters, x) if parameters else self.module(x)
            return losses_of(self.loss, outputs, y, len(x)).sum()

    def guarded_total(self, x: Tensor, y: Tensor) -> Tensor:
        """The same for all records at once, where only functions that treat each record alone may be called."""
        try:
            with self.masks, RecordWise():
                outputs = self.module(x)
        except MixesRecords:
            raise NoRule from None
        return losses_of(partial(losses_apart, self.loss, size=1), outputs, y, len(x)).sum()

    def parameters(self, row: Tensor) -> dict[str, Tensor]:
        """Copies of the parameters in the row, in the module's own types."""
        own = dict(self.module.named_parameters())
        return {name: value.to(own[name].dtype) for name, value in self.layout.split(row.detach().clone()).items()}
