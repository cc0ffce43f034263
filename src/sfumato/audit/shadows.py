"""Shadow models: others like the attacked one, trained on data of which the attacker knows what each has seen (Shokri et al. 2017).

They are trained in blocks, as the engine's plan says, and each block is on disk as soon as it is done.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from sfumato.audit.attack import Keep, Tell
from sfumato.audit.units import Units, coins, inside
from sfumato.digest import cache_key
from sfumato.engine.executor import in_order, threads
from sfumato.engine.plan import PATHS, Plan
from sfumato.key import Key
from sfumato.objective import Objective
from sfumato.update import Layout

_AT_ONCE = 1000  # records that a model is asked about
_MOST = 50.0  # a confidence beyond it is as good as certain


@runtime_checkable
class World(Protocol):
    """Trains models on one candidate of each pair, as the attacked one was trained."""

    @property
    def units(self) -> Units: ...
    @property
    def module(self) -> nn.Module: ...
    @property
    def objective(self) -> Objective: ...
    @property
    def notes(self) -> tuple[str, ...]:
        """What the attacker is assumed to know."""
        ...

    def facts(self) -> object:
        """Whatever changes what is trained."""

    def plan(self, models: int) -> Plan:
        """How so many models are trained."""

    def train(self, choices: Tensor, keys: Sequence[Key], plan: Plan) -> Tensor:
        """Rows [models, looks, dimension]: the parameters that each model shows, once or after several rounds."""


@dataclass(frozen=True)
class Seen:
    """Everything that an attacker looks at: models [shadows + 1, looks, dimension], the target last, and who is `inside` each
    shadow. `losses` are of every record under every model, [shadows + 1, looks, records].
    """

    world: World
    models: Tensor
    inside: Tensor
    losses: Tensor

    @staticmethod
    def of(world: World, target: Tensor, shadows: Tensor, inside: Tensor) -> Seen:
        """A target [looks, dimension] and its shadows, if there are any."""
        models = torch.cat([shadows, target[None]]) if len(shadows) else target[None]
        return Seen(world, models, inside, losses(world, models))

    @property
    def shadows(self) -> int:
        return len(self.inside)

    def instead(self, shadow: int) -> Seen:
        """The same where one of the shadows is the target, of which it is known who is inside. Its opposite is left out too, so
        that each unit is in half of the others.
        """
        rows = [number for number in range(self.shadows) if number // 2 != shadow // 2]
        both = [*rows, shadow]
        return Seen(self.world, self.models[both], self.inside[rows], self.losses[both])

    @cached_property
    def confidences(self) -> Tensor:
        """[shadows + 1, units]: the mean over a unit's records, and over looks."""
        return self.world.units.means(confidence(self.losses).mean(1))


def confidence(loss: Tensor) -> Tensor:
    """-ln(e^loss - 1): for the cross entropy -ln p it is ln(p / (1 - p)), the scale on which Carlini et al. (2022, section
    IV.C) find confidences of many models near normal; for any other loss it grows as the loss falls to nothing.

    >>> confidence(torch.tensor([0.5]).double().log().neg()).abs().item() < 1e-12
    True
    """
    return -torch.log(torch.expm1(loss.double().clamp(min=1e-30))).clamp(-_MOST, _MOST)


def losses(world: World, rows: Tensor, x: Tensor | None = None) -> Tensor:
    """The loss of each record under each of the rows [..., dimension]; of the units' own records, or of `x` in their place."""
    module, layout, records = copy.deepcopy(world.module).eval(), Layout.of(world.module), world.units.records
    inputs = records.x if x is None else x
    found = []
    with torch.no_grad():
        for row in rows.reshape(-1, rows.shape[-1]):
            layout.write(row, module)
            parts = zip(torch.split(inputs, _AT_ONCE), torch.split(records.y, _AT_ONCE), strict=True)
            found.append(torch.cat([world.objective.loss(module(some).double(), y) for some, y in parts]).double())
    return torch.stack(found).reshape(*rows.shape[:-1], -1)


def shadows_of(world: World, count: int, keep: Keep, tell: Tell) -> tuple[Tensor, Tensor]:
    """So many shadows [count, looks, dimension], and who is inside each [count, units]."""
    if count == 0:
        return torch.empty(0, 1, Layout.of(world.module).dimension), inside(torch.empty(0, world.units.pairs).bool())
    key = keep.key.child("shadows", world=name_of(world))
    choices = coins(key, count, world.units.pairs)
    keys = [key.child("shadow", number=number) for number in range(count)]
    return _trained(world, choices, keys, keep, tell), inside(choices)


def _trained(world: World, choices: Tensor, keys: list[Key], keep: Keep, tell: Tell) -> Tensor:
    count, name = len(choices), name_of(world)
    plan = _kept_plan(world, count, keep)
    size = plan.share(count)
    blocks = [range(first, min(first + size, count)) for first in range(0, count, size)]
    facts = {block: (world, plan.path, block.start, block.stop) for block in blocks}
    known = {block: keep.get(_name(name, block), facts[block]) for block in blocks}
    missing = [block for block in blocks if known[block] is None]
    started, done = time.perf_counter(), sum(len(block) for block in blocks if known[block] is not None)
    if done:
        tell(f"{done} of {count} shadows were trained before")

    def train(block: range) -> Tensor:
        return world.train(choices[block.start : block.stop], keys[block.start : block.stop], plan)

    cores, begun = torch.get_num_threads(), done
    try:
        with threads(plan.workers if plan.workers > 1 else 1) as pool:
            rows = in_order(pool, train, missing, plan.workers) if plan.workers > 1 else map(train, missing)
            for block, trained in zip(missing, rows, strict=True):
                known[block] = keep.put(_name(name, block), facts[block], {"rows": trained})
                done += len(block)
                left = (time.perf_counter() - started) / (done - begun) * (count - done)
                tell(f"shadow {done} of {count}" + (f", {left:.0f} s left" if done < count else ""))
    finally:
        torch.set_num_threads(cores)
    return torch.cat([found["rows"] for block in blocks if (found := known[block]) is not None])


def name_of(*things: object) -> str:
    """The name of keys and files; `Keep` keeps nothing of what is unnamed."""
    return cache_key(*things) or "unnamed"


def _name(world: str, block: range) -> str:
    return f"shadows-{world[:8]}-{block.start:04d}-{block.stop:04d}"


def _kept_plan(world: World, count: int, keep: Keep) -> Plan:
    """The plan is measured once: another one would give other last bits to what is trained after an interruption."""

    def measured() -> dict[str, Tensor]:
        plan = world.plan(count)
        return {"plan": torch.tensor([PATHS.index(plan.path), plan.block, plan.workers])}

    path, block, workers = keep.once(f"plan-{name_of(world)[:8]}-{count}", (world, count), measured)["plan"].tolist()
    return Plan(PATHS[path], block, workers)
