"""Models that one place trains on its own records: what the studies of the literature attack."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from sfumato.audit.units import Units
from sfumato.data.population import Population, Records
from sfumato.digest import digest
from sfumato.engine.plan import Plan, choose
from sfumato.engine.simulate import job_of
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.local.task import Task
from sfumato.models import training_mode
from sfumato.objective import Objective
from sfumato.pieces.mean import RealisedMean
from sfumato.pieces.protocol import LocalPiece
from sfumato.pieces.sampler import Everyone
from sfumato.round import Round
from sfumato.update import Layout


@dataclass(frozen=True)
class LocalWorld:
    """Each model sees one half of a pool, and takes the steps of `local` from the same public start.

    To the engine every model is a client of one round, so its plan decides how many are trained at once, stacked or one by one.
    """

    pool: Records
    module: nn.Module
    local: LocalPiece
    objective: Objective

    def __post_init__(self) -> None:
        if self.pool.count < 2:
            raise BadValue(f"a pool of {self.pool.count} records: each model sees one half. Give at least 2.")

    @cached_property
    def units(self) -> Units:
        half = self.pool.count // 2
        first, second = (Records(*(part[start : start + half] for part in self.pool)) for start in (0, half))
        return Units.of_records(first, second)

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            "The attacker asks the final model for the loss of any record, knows how it was trained and where it began, and has "
            "records of the same distribution: shadows are trained on other halves of one pool.",
        )

    @cached_property
    def _facts(self) -> str:
        trained = self.module, self.local, self.objective.name, self.objective.loss
        return digest("local", self.units.records, self.units.owner, *trained)

    def facts(self) -> object:
        return self._facts

    def plan(self, models: int) -> Plan:
        half = Records(*(part[: self.units.pairs] for part in self.pool))
        people = Population.from_function(lambda client: tuple(half), models, "shadows")
        round = Round(sample=Everyone(), local=self.local, aggregate=RealisedMean(), nonprivate=True)
        job, _ = job_of(round, people, self.module, self.objective, "cpu")
        return choose(job.slots, job.module, job.objective, job.example, models)

    def train(self, choices: Tensor, keys: Sequence[Key], plan: Plan) -> Tensor:
        module, layout = training_mode(copy.deepcopy(self.module)), Layout.of(self.module)
        start, pairs = layout.row(module), self.units.pairs
        places = torch.arange(pairs)
        rows = [torch.where(choice, places, places + pairs) for choice in choices]
        records = [Records(*(part.index_select(0, row) for part in self.units.records)) for row in rows]
        starts, ids = start.expand(len(keys), -1), range(len(keys))
        task = Task(
            plan.forward(module), layout, self.objective.loss, start, starts, records, keys, 0, ids, lasting=keys
        )
        return (start + self.local.train(task)).unsqueeze(1)
