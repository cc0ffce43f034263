"""How clients' own models do on their own test parts. It reads clients' data without paying: a diagnostic, not private."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from sfumato.data.population import Population, Records
from sfumato.engine.simulation import Progress
from sfumato.objective import Objective, evaluate

_MOST_CLIENTS = 1000


@dataclass(frozen=True)
class Scores:
    """One number per client."""

    metric: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def spread(self) -> float:
        return float(np.std(self.values))

    @property
    def worst_decile(self) -> float:
        """The mean of the tenth of the clients that does worst, at least one of them."""
        return float(np.mean(np.sort(self.values)[: max(1, len(self.values) // 10)]))

    def summary(self) -> dict[str, Any]:
        numbers = {"mean": self.mean, "spread": self.spread, "worst_decile": self.worst_decile}
        return {"metric": self.metric, **numbers, "clients": len(self.values)}


class PersonalScores:
    """Scores each client's own model on its own test part; a model that did not change is not scored again.

    Clients without a test part are left out; at most the first thousand are scored.
    """

    def __init__(self, population: Population, objective: Objective) -> None:
        self.population, self.objective = population, objective
        self.clients = range(min(population.size, _MOST_CLIENTS))
        self._known: dict[int, tuple[torch.Tensor, float]] = {}
        self._tests: dict[int, Records | None] = {}

    def __call__(self, progress: Progress) -> Scores:
        """The scores after a round, of each client's own model, or of the global one where it keeps none."""
        module = progress.run.module(progress.params).cpu()
        values = []
        for client in self.clients:
            row, test = progress.memory.get(client, {}).get("start", progress.params), self._test(client)
            if test is None or test.count == 0:
                continue
            if client not in self._known or self._known[client][0] is not row:
                progress.run.job.slots.layout.write(row.cpu(), module)
                self._known[client] = (row, self._score(module, test))
            values.append(self._known[client][1])
        return Scores(self.objective.primary, tuple(values))

    def of_global(self, progress: Progress) -> Scores:
        """The same for the global model, on every client's test part."""
        tests = [test for client in self.clients if (test := self._test(client)) is not None and test.count]
        module = progress.module
        return Scores(self.objective.primary, tuple(self._score(module, test) for test in tests))

    def _score(self, module: nn.Module, test: Records) -> float:
        return evaluate(module, test, self.objective)[self.objective.primary]

    def _test(self, client: int) -> Records | None:
        if client not in self._tests:
            self._tests[client] = self.population.client(client).test
        return self._tests[client]
