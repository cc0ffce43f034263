"""Membership by canaries: records that were refined until shadows answer them as differently as can be (Wen et al. 2023)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sfumato.audit.attack import Found, Keep, Subject, Tell
from sfumato.audit.membership import OfRun, likelihood_ratios
from sfumato.audit.shadows import Seen, confidence, losses, name_of
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.update import Layout

_STAGE = 10  # steps between two that are kept
_AT_ONCE = 500  # records
_LEAST = 1e-6  # a loss below it counts as this, so that no step is infinite


@dataclass(frozen=True)
class CanaryRecord(OfRun):
    """Instead of each record itself the target is asked about a synthetic one, and its answer is scored as LiRA does.

    The synthetic record starts at the real one and takes steps down the gradient of l_in - ln(1 - e^(-l_out)): shadows that saw
    the real record shall know the synthetic one by its label, those that did not shall not. In each step there are two
    opposite shadows, so one of them saw the record. It stays within the values that records have.
    """

    name: ClassVar[str] = "canary"
    in_turn: ClassVar[bool] = False
    summary: ClassVar[str] = "synthetic records refined against shadows (Wen et al. 2023)"
    steps: int = 20
    size: float = 0.005  # of a step, over the range of values

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.size > 0:
            raise BadValue(
                f"steps={self.steps}, size={self.size}: at least one step, of a positive size, e.g. 20 and 0.005."
            )

    def __call__(self, subject: Subject, keep: Keep, tell: Tell) -> Found:
        return self.found(self, subject, keep, tell)

    def scores(self, seen: Seen, keep: Keep, key: Key, tell: Tell) -> np.ndarray:
        if not seen.world.units.records.x.is_floating_point():
            raise BadValue("canary: records of whole numbers, as text is, cannot be refined by small steps. Use lira.")
        if seen.shadows < 2:
            raise BadValue(f"canary: {seen.shadows} shadows, and nothing to refine against. Use at least 2.")
        canaries = self._refined(seen, keep, key, tell)
        said = seen.world.units.means(confidence(losses(seen.world, seen.models, canaries)).mean(1))
        return likelihood_ratios(said.numpy(), seen.inside.numpy(), online=True)

    def _refined(self, seen: Seen, keep: Keep, key: Key, tell: Tell) -> Tensor:
        """All records, refined; every few steps they are kept."""
        x, known = seen.world.units.records.x, (seen.world, seen.inside, self.size)
        pairs = key.child("pairs").integers(self.steps) % (seen.shadows // 2)
        for start in range(0, self.steps, _STAGE):
            some = pairs[start : start + _STAGE].tolist()
            stage, facts = partial(self._stage, seen, x, some), (known, start, some)
            x = keep.once(f"canaries-{name_of(*known)[:8]}-{start:04d}", facts, stage)["x"]
            tell(f"canaries refined {min(start + _STAGE, self.steps)} of {self.steps} times")
        return x

    def _stage(self, seen: Seen, x: Tensor, pairs: list[int]) -> dict[str, Tensor]:
        real = seen.world.units.records.x
        low, high = real.amin(), real.amax()
        for pair in pairs:
            gradient = _gradient(seen, x, pair)
            x = (x - self.size * (high - low) * gradient.sign()).clamp(low, high)
        return {"x": x}


def _gradient(seen: Seen, x: Tensor, pair: int) -> Tensor:
    """Of what is refined, by one shadow that saw the record and its opposite that did not."""
    world, layout = seen.world, Layout.of(seen.world.module)
    inside = seen.inside[2 * pair][world.units.owner]
    total = torch.zeros_like(x)
    for which, saw in ((2 * pair, inside), (2 * pair + 1, ~inside)):
        module = copy.deepcopy(world.module).eval()
        layout.write(seen.models[which][-1], module)
        module.requires_grad_(False)
        parts = zip(*(torch.split(part, _AT_ONCE) for part in (x, world.units.records.y, saw)), strict=True)
        found = []
        for some, y, known in parts:
            asked = some.clone().requires_grad_(True)
            loss = world.objective.loss(module(asked), y).clamp(min=_LEAST)
            wanted = torch.where(known, loss, -torch.log(-torch.expm1(-loss)))
            found.append(torch.autograd.grad(wanted.sum(), asked)[0])
        total += torch.cat(found)
    return total
