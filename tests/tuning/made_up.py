"""A run on a handful of made-up clients that is ready to be tuned. Not a test itself."""

from __future__ import annotations

from typing import Any

from sfumato import PublicData
from sfumato.data.population import Population
from sfumato.objective import Objective, classification
from sfumato.run.prepare import Prepared, built, round_of
from sfumato.run.request import DataRequest, Request
from sfumato.update import Layout
from tests.helpers import linear, made_up_population

OPTIONS = {"sample": "everyone", "epochs": 1, "clip": 1.0, "lr": 0.5, "server_lr": 1.0}


def prepared(
    population: Population | None = None,
    *,
    recipe: str = "dp-fedavg",
    epsilon: float | None = 4.0,
    rounds: int = 2,
    options: dict[str, Any] | None = None,
    objective: Objective | None = None,
    **asked: Any,
) -> Prepared:
    """Twelve clients of four records of three classes, unless others are given; a public test split of ten records."""
    population = population or made_up_population([4] * 12)
    data = DataRequest(name="hers:clients", clients=population.size, records_per_client=0, outputs=3)
    chosen = {**(OPTIONS if options is None else options)}
    request = Request(recipe=recipe, epsilon=epsilon, delta=1e-3, rounds=rounds, data=data, options=chosen, **asked)
    module = linear()
    round = round_of(request, {}, built(request, None, 3), None, None, Layout.of(module))
    test = PublicData("made-up/test", made_up_population([10], seed=9).client(0).train)
    return Prepared(request, population, test, module, objective or classification(3), round, (6,), 3, {})
