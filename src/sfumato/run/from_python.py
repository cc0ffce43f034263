"""From objects to everything that a run needs: what run.toml can name of them is named there, and the rest is said."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from sfumato.adapt_objective import as_objective
from sfumato.budget.budgets import Budgets
from sfumato.data.population import Population, PublicData, require_population, require_public
from sfumato.data.tables import Table
from sfumato.guarantee import default_delta
from sfumato.imports import is_import_path
from sfumato.objective import Objective
from sfumato.round import Round
from sfumato.run.budgeted import budgeted
from sfumato.run.prepare import Prepared, model_of
from sfumato.run.read_round import read_round, round_text
from sfumato.run.request import DataRequest, ModelRequest, Request, resolved
from sfumato.run.source import check_labels_of, example
from sfumato.several_inputs import taking
from sfumato.update import Layout


def gathered(
    request: Request,
    round: Round,
    population: Population,
    module: nn.Module | str,
    objective: Objective | nn.Module,
    test: PublicData | None,
) -> Prepared:
    """The objects, and the request that describes them."""
    population = require_population(population, "simulate")
    test = None if test is None else require_public(test, "simulate(test=...)")
    records = example(population, test)
    given = taking(module, records.inputs) if isinstance(module, nn.Module) else None
    objective = as_objective(objective, given, *records)
    check_labels_of(population, test, objective)
    shape, outputs = tuple(records.x.shape[1:]), objective.outputs or math.prod(records.y.shape[1:])
    named = ModelRequest(name=module if isinstance(module, str) else "")
    model = taking(model_of(named, shape, outputs) if isinstance(module, str) else module, records.inputs)
    said = round_text(round)
    reachable = {
        "round": said is not None,
        "population": bool(population.source),
        "module": isinstance(module, str),
        "objective": bool(objective.task),
        "test data": test is None or is_import_path(test.name),
    }
    *others, last = [part for part, known in reachable.items() if not known] or [""]
    unnamed = f"{', '.join(others)} and {last}" if others else last
    table = population.origin if isinstance(population.origin, Table) else None
    data = DataRequest(
        name=population.source or population.name,
        columns={} if table is None else table.to_table(),
        counted=population.counted,
        clients=population.size,
        records_per_client=0,
        task=objective.task,
        outputs=outputs,
        test=None if test is None else test.name,
    )
    request = replace(request, recipe="", pieces=said or "", unnamed=unnamed or None, data=data, model=named)
    return Prepared(
        request=request,
        population=population,
        test=test,
        module=model,
        objective=objective,
        round=round,
        input_shape=shape,
        outputs=outputs,
        counts={},
    )


def with_budgets(prepared: Prepared, given: Any, resumed: Path | None) -> Prepared:
    """The round that keeps to each client's own budget; a run that goes on keeps the one that it began with."""
    request, population = prepared.request, prepared.population
    budgets = None if given is None else Budgets.of(given, population.size, population.ids)
    found = {} if resumed is None else resolved(resumed / "run.toml")
    if request.delta is None:  # a Round knows what is declared of records, and the request does not
        usual = default_delta(None if population.counted else prepared.round.units(population.size))
        request = replace(request, delta=usual if budgets is None else budgets.delta)
    order = None
    if "round" in found:
        round = read_round(found["round"])
    elif resumed is None:
        dimension = prepared.round.local.message_length(Layout.of(prepared.module))
        round, order = budgeted(prepared.round, budgets, request, population.size, dimension)
    else:
        round = prepared.round
    if budgets is not None:
        request = replace(request, budgets=budgets.to_table())
        population = population.with_public_ids()
    if round is not prepared.round and request.pieces:
        request = replace(request, pieces=round_text(round) or "")
    return replace(prepared, request=request, population=population, round=round, budgets=budgets, order=order)
