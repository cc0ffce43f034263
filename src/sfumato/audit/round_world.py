"""Models that a Round trains: the whole recipe run again, with some of its records or clients replaced by others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from sfumato.audit.units import Units
from sfumato.data.population import Client, Population, Records
from sfumato.digest import digest
from sfumato.engine.plan import Plan
from sfumato.engine.simulate import simulate
from sfumato.key import Key
from sfumato.objective import Objective
from sfumato.round import Round


@dataclass(frozen=True)
class RoundWorld:
    """The population has the first candidate of each pair; where a model is to have the second, it stands in that one's place.

    All other records are the same in every model: the attacker is assumed to know them, as differential privacy assumes too.
    `places` are (client, position) of each pair, the position being 0 where whole clients are replaced; `seconds` are the second
    candidates' records; `looks` the rounds, counted from 1, after which the model is seen; `engine` how each run is computed.
    """

    round: Round
    population: Population
    module: nn.Module
    objective: Objective
    rounds: int
    units: Units
    places: Tensor
    seconds: tuple[Records, ...] = field(repr=False)
    looks: tuple[int, ...]
    engine: Plan | None = None
    device: str = "cpu"
    notes: tuple[str, ...] = ()

    @cached_property
    def _facts(self) -> str:
        trained = self.round, self.rounds, self.module, self.objective.name, self.objective.loss
        how = digest("round", *trained, self.looks, self.units.kind, self.engine)
        clients = [digest(self.population.client(number)) for number in range(self.population.size)]
        return digest(how, self.units.records, self.units.owner, self.places, clients)

    def facts(self) -> object:
        return self._facts

    def plan(self, models: int) -> Plan:
        """One run after another, each by a plan of its own."""
        return Plan()

    def train(self, choices: Tensor, keys: Sequence[Key], plan: Plan) -> Tensor:
        return torch.stack([self._run(choice, key) for choice, key in zip(choices, keys, strict=True)])

    def _run(self, choice: Tensor, key: Key) -> Tensor:
        seed, people = int(key.integers(1)[0]), self.with_choice(choice)
        run = simulate(
            self.round,
            people,
            self.module,
            self.objective,
            rounds=self.rounds,
            seed=seed,
            plan=self.engine,
            device=self.device,
        )
        wanted = set(self.looks)
        return torch.stack([progress.params.cpu() for progress in run if progress.round in wanted])

    def with_choice(self, choice: Tensor) -> Population:
        """The population where each place has its first candidate if the choice is true, and else its second."""
        load = _Replaced(self.population, self.units.kind, self._swaps(choice))
        return replace(self.population, load=load, source="", origin=None)

    def _swaps(self, choice: Tensor) -> dict[int, list[tuple[int, Records]]]:
        """Who gets what in place of the first candidate: by client, the position and the record or records."""
        swaps: dict[int, list[tuple[int, Records]]] = {}
        for place in (~choice).nonzero().flatten().tolist():
            client, position = self.places[place].tolist()
            swaps.setdefault(client, []).append((position, self.seconds[place]))
        return swaps


@dataclass(frozen=True)
class _Replaced:
    """The clients of a population, some of whose records, or who as a whole, are others."""

    there: Population
    kind: str
    swaps: dict[int, list[tuple[int, Records]]]

    def __call__(self, number: int) -> Client:
        client = self.there.client(number)
        own = self.swaps.get(number)
        if own is None:
            return client
        if self.kind == "client":
            return Client(own[0][1], client.test)
        x, y = (part.clone() for part in client.train)
        for position, other in own:
            x[position], y[position] = other.x[0], other.y[0]
        return Client(Records(x, y), client.test)


def one_by_one(records: Records) -> tuple[Records, ...]:
    """Each record by itself."""
    return tuple(Records(records.x[i : i + 1], records.y[i : i + 1]) for i in range(records.count))
