"""One of two neighbouring worlds, to be run over and over by the engine's own slots; without a ledger: nothing is released."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.data.population import Population, Records
from sfumato.derive import UnitDerivation
from sfumato.engine.clients import Clients, Job, message_context
from sfumato.engine.cohort import Cohort
from sfumato.engine.keys import Keys
from sfumato.engine.plan import Plan
from sfumato.engine.slots import Opening, Slots
from sfumato.key import Key
from sfumato.models import training_mode
from sfumato.objective import Objective, regression
from sfumato.pieces.context import StepContext
from sfumato.round import Round
from sfumato.update import Layout

_BLOCK = 256


class Layers(nn.Module):
    """A few coordinates in so many layers, which nobody trains: they stand for a model."""

    def __init__(self, dimension: int, layers: int = 1) -> None:
        super().__init__()
        width, more = divmod(dimension, layers)
        sizes = [width + (place < more) for place in range(layers)]
        self.parts = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in sizes])

    def forward(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Again:
    """A world: cohort, client pieces, channel, aggregate and server pieces are the engine's, and so are their keys.

    What the optimizer makes of a release is a function of it alone, and canaries do not look at parameters. So it runs only
    where others really `train`.
    """

    cohort: Cohort
    size: int
    rounds: int
    train: bool = False

    @staticmethod
    def of(
        round: Round,
        proof: UnitDerivation,
        population: Population,
        module: nn.Module,
        rounds: int,
        objective: Objective | None = None,
    ) -> Again:
        """The world of a round whose canaries are among the clients; clients train where there is an objective."""
        slots = Slots(round, proof, Layout.of(module))
        loop = slots.alone or objective is not None
        plan = Plan() if loop else Plan("stacked", min(_BLOCK, population.size))
        example = population.client(0).train
        job = Job(slots, training_mode(module), objective or regression(), Records(example.x[:2], example.y[:2]))
        return Again(Cohort(Clients(job, population, plan)), population.size, rounds)

    @property
    def slots(self) -> Slots:
        return self.cohort.clients.job.slots

    def run(self, key: Key) -> Iterator[tuple[frozenset[int], Opening]]:
        """Run all rounds from a secret of this run's own; after each, who was drawn and how it was opened."""
        slots, keys, job = self.slots, Keys.of(key), self.cohort.clients.job
        params, kept = slots.layout.row(job.module), slots.start()
        state = slots.round.optimizer.start(params) if self.train else {}
        for number in range(self.rounds):
            ids = slots.round.sample.cohort(self.size, keys.turn(number)).tolist()
            opening = self.cohort.open(params, number, keys.opening(number), kept, state)
            total = self.cohort.total(params, ids, opening, keys.clients, None, keys.channel)
            if slots.sums or self.train:
                seen = message_context(job, params, keys, number, total.senders)
                value, kept = slots.release(total.rows, total.weight, opening, keys, kept, seen)
                if self.train:
                    context = StepContext(number, slots.layout, job.objective, job.with_params, keys.optimizer(number))
                    params, state = slots.round.optimizer.learn(params, state, value, context)
            yield frozenset(ids), opening


def silent(size: int, records: int, name: str = "canaries") -> Population:
    """So many clients with as many records each, which say nothing."""
    x, y = torch.zeros(records, 1), torch.zeros(records)
    return Population(name, size, lambda client: (x, y))


def unit(dimension: int, order: int) -> Tensor:
    """The direction of length 1 that noise of this kind hides least: spread out, or on one coordinate where L1 is bounded."""
    if order == 1:
        return torch.eye(1, dimension)[0]
    return torch.full((dimension,), 1.0 / math.sqrt(dimension))
