"""Two neighbouring worlds of private local training: one record of one client differs.

A linear model stands for the client's, so that a record's gradient is whatever the audit wants: huge, in one direction. The
client's own kernels clip it, batches are drawn by its sampler, and every noisy sum is seen, since each is paid for. The absent
world lacks the record (add/remove), or has one that pulls the other way (replace). Other records have no gradient; in batches
of a fixed size they pull the other way, so that whichever record is displaced shows it too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.account.event import Relation
from sfumato.audit.again import Again, unit
from sfumato.audit.asked import Asked, NoCanary
from sfumato.audit.canaries import Canaries, WatchedSteps
from sfumato.audit.scores import Density, Look, Values
from sfumato.data.population import Population, Records
from sfumato.gradients import OneByOne
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.local.task import Task
from sfumato.objective import Objective
from sfumato.pieces.law import Gaussian
from sfumato.pieces.sampler import Everyone, FixedSize
from sfumato.update import Layout

_HUGE = 1e6
_SMALL = 4


@dataclass(frozen=True)
class RecordWorlds:
    """The two worlds of one canary record, run by the engine; scores are log-likelihood ratios of all noisy sums."""

    asked: Asked
    worlds: tuple[Again, Again]  # absent, present
    seen: list[Tensor] = field(repr=False)
    look: Look
    scale: float  # from a mean gradient back to the sum

    @property
    def words(self) -> tuple[str, ...]:
        """What was run, for people."""
        size = self.worlds[1].cohort.clients.population.client(0).train.count
        return (
            f"a canary record among {size - 1} others of its client",
            f"a linear model of {len(self.look.present)} parameters stands for one of {self.asked.dimension}",
        )

    def score(self, present: bool, key: Key) -> float:
        """The log-likelihood ratio of one run, from a fresh key."""
        self.seen.clear()
        for _ in self.worlds[present].run(key):
            pass
        if not self.seen:
            return 0.0
        return float(self.look.ratio(torch.stack(self.seen).numpy() * self.scale).sum())

    def imagined(self, present: bool, runs: int, key: Key) -> Values:
        """Scores of made-up runs, as they would be if the round is what it states."""
        local: Any = self.asked.round.local
        size, total = self.worlds[1].size, np.zeros(runs)
        chance = min(1.0, self.asked.round.sample.expected(size) / size)
        for number in range(self.asked.rounds):
            own = key.child("round", number=number)
            part = own.child("takes part").uniform(runs) < chance
            for step in range(local.steps):
                total += np.where(part, self.look.imagined(runs, present, own.child("step", number=step)), 0.0)
        return total


def record_worlds(asked: Asked) -> RecordWorlds:
    """The worlds in which one record differs, for private local training."""
    local = asked.round.local
    if not isinstance(local, DpSgd):
        raise NoCanary(
            f"{type(local).__name__} is no private local training of a known kind, so its records have no canary"
        )
    dimension = _SMALL if asked.event is not None and _cheap(asked).event == asked.event else asked.dimension
    relation = asked.proof.relation
    fixed = isinstance(local.batch, FixedSize)
    direction = unit(dimension, local.order) * _HUGE
    joins = relation is Relation.ADD_REMOVE  # and `records` is the fewest that a client has, also without it
    others = (local.records if joins else local.records - 1) if fixed else 1
    pulls = -direction if fixed else torch.zeros_like(direction)
    absent = None if relation is Relation.ADD_REMOVE else -direction
    seen: list[Tensor] = []
    watched = replace(local, optimizer=WatchedSteps(seen), weight_decay=0.0, proximal=0.0, lr_decay=1.0)
    module = nn.Linear(dimension, 1, bias=False)
    nn.init.zeros_(module.weight)
    drawn = asked.round.sample.cohort_size(asked.proof.before[1])
    clients = asked.population if drawn is not None and drawn < asked.population else 1
    again = []
    for last in (absent, direction):
        records = [*[pulls] * others, *([] if last is None else [last])]
        x = torch.stack(records)
        population = Population("canaries", clients, _holder(x))
        silent = torch.zeros(max(1, clients - 1), dimension)
        # What clients remember is made of releases that are paid for, so whoever saw these knows it.
        audited = replace(asked.round, local=Canaries(watched, 1, silent), personal=None)
        proof = audited.derive(population=asked.population, dimension=dimension).primary
        world = Again.of(audited, proof, population, module, asked.rounds, Objective(linear))
        again.append(world)
    adds = {
        name: _clipped(watched, row, module) for name, row in (("in", direction), ("out", absent), ("other", pulls))
    }
    batch = local.batch.size if isinstance(local.batch, FixedSize) else others
    chance = local.batch.expected(others + 1) / (others + 1)
    base = adds["other"] if fixed else np.zeros(dimension)
    gone = np.zeros(dimension) if absent is None else adds["out"] - base
    stddev = local.unproven(replace(asked.proof.before[1], dimension=dimension)).stddev
    assert stddev is not None, "it adds noise"
    look = Look(Density(local.law, stddev), adds["in"] - base, gone, batch * base, chance)
    return RecordWorlds(asked, (again[0], again[1]), seen, look, local.divisor)


def _cheap(asked: Asked) -> Asked:
    return replace(asked, dimension=_SMALL)


def _holder(x: Tensor) -> Any:
    y = torch.ones(len(x))
    return lambda client: (x, y)


def linear(outputs: Tensor, y: Tensor) -> Tensor:
    """A loss whose gradient for a record is the record itself."""
    return outputs.squeeze(-1) * y


def _clipped(local: Any, row: Tensor | None, module: nn.Module) -> Values:
    """What one record adds to a sum: its gradient, as the client's own kernels clip it, but for the noise."""
    if row is None or not row.any():
        return np.zeros(module.in_features)  # type: ignore[arg-type]
    seen: list[Tensor] = []
    quiet = Gaussian(1e-9)  # whatever the law: some have no noise so small
    alone = replace(local, batch=Everyone(), records=1, steps=1, optimizer=WatchedSteps(seen), law=quiet)
    layout, start = Layout.of(module), torch.zeros(len(row))
    key = Key.from_seed(0)
    alone.train(
        Task(OneByOne(module), layout, linear, start, start[None], [Records(row[None], torch.ones(1))], [key], 0)
    )
    return np.asarray(seen[0].numpy())
