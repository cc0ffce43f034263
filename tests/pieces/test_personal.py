"""Personal models: the helper of PriFedSync against the paper's formula, and how they are measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sfumato import (
    AddNoise,
    Clip,
    DpSgd,
    FixedSize,
    Gaussian,
    GradientDescent,
    HelperBlend,
    Plan,
    Poisson,
    Population,
    RealisedMean,
    Round,
    Sgd,
    Unit,
    UnsoundRound,
    classification,
)  # fmt: skip
from sfumato.engine.clients import Clients
from sfumato.engine.cohort import Cohort
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.gradients import OneByOne
from sfumato.local.task import Task
from sfumato.objective import evaluate
from sfumato.run.personal_scores import PersonalScores, Scores
from tests.helpers import linear, made_up_population

LOCAL = DpSgd(2, FixedSize(3), 8, law=Gaussian(0.5), optimizer=GradientDescent(0.3), proximal=0.1)
BLEND = HelperBlend(0.3, own=((2, 0.9),))


def round_of(**changed: Any) -> Round:
    slots: dict[str, Any] = {
        "sample": Poisson(0.5), "local": LOCAL, "aggregate": RealisedMean(), "personal": BLEND,
        "optimizer": GradientDescent(0.6), "unit": Unit.RECORD,
    }  # fmt: skip
    return Round(**{**slots, **changed})


def ready(round: Round, rounds: int = 4, **options: Any) -> Any:
    population = made_up_population([9, 12, 8, 10, 9])
    settings: dict[str, Any] = {"seed": 3, "plan": Plan(), **options}
    return simulate(round, population, linear(), classification(3), rounds=rounds, **settings)


def test_it_is_the_formula_of_the_paper() -> None:
    """Equation 2.1 and Algorithm 1, client by client: h = (1 - a) w + a global, kept by those who are not drawn."""
    simulation = ready(round_of(), rounds=6)
    population, layout = simulation.population, simulation.job.slots.layout
    helpers: dict[int, torch.Tensor] = {}
    params = simulation.start.params
    drawn_before: set[int] = set()
    for progress in simulation:
        number = progress.round - 1
        keys = simulation.randomness.keys(number)
        drawn = Poisson(0.5).cohort(5, keys.turn(number)).tolist()
        models = {}
        for client in drawn:
            start = helpers.get(client, params)
            own = [keys.client(client, round=number)]
            task = Task(
                OneByOne(linear()), layout, classification(3).loss, start, start[None],
                [population.client(client).train], own, number,
            )  # fmt: skip
            models[client] = start + LOCAL.train(task)[0]
        if models:
            params = (1 - 0.6) * params + 0.6 * torch.stack(list(models.values())).mean(0)
        for client, model in models.items():
            weight = 0.9 if client == 2 else 0.3
            helpers[client] = (1 - weight) * model + weight * params
        drawn_before |= set(drawn)
        assert torch.allclose(progress.params, params, atol=1e-5)
        assert set(progress.memory) == drawn_before
        for client in range(5):
            expected = helpers.get(client, params)
            assert torch.allclose(layout.row(progress.personal_module(client)), expected, atol=1e-5), (number, client)
    assert len(drawn_before) > 0
    assert any(not torch.allclose(helpers[client], params, atol=1e-3) for client in helpers)


def test_clients_that_are_not_drawn_keep_theirs() -> None:
    simulation, before = ready(round_of(), rounds=5), {}
    kept = 0
    for progress in simulation:
        number = progress.round - 1
        drawn = Poisson(0.5).cohort(5, simulation.randomness.keys(number).turn(number)).tolist()
        for client, row in before.items():
            assert (progress.memory[client] is row) == (client not in drawn)
            kept += client not in drawn
        before = progress.memory
    assert kept > 0


def test_what_a_client_keeps_is_not_clipped_with_its_message() -> None:
    simulation = ready(round_of(client=(Clip(1e-3),)))
    cohort = Cohort(Clients(simulation.job, simulation.population, Plan()))
    params, keys = simulation.start.params, simulation.randomness.keys(0)
    total = cohort.total(params, range(5), cohort.open(params, 0, keys.opening(0)), keys.clients)
    assert total.rows.norm() <= 5e-3
    kept = cohort.keep({}, params)  # blended with the parameters that did not move
    own = [(rows["start"] - params) / (0.1 if client == 2 else 0.7) for client, rows in kept.items()]
    assert all(row.norm() > 0.1 for row in own) and len(own) == 5


def test_resume_goes_on_with_what_clients_remember(tmp_path: Path) -> None:
    *_, whole = ready(round_of(), rounds=5, folder=tmp_path / "whole")
    list(ready(round_of(), rounds=2, folder=tmp_path / "parts"))
    resumed = ready(round_of(), rounds=5, folder=tmp_path / "parts", resume=True)
    assert resumed.start.memory
    *_, after = resumed
    assert torch.equal(after.params, whole.params)
    assert set(after.memory) == set(whole.memory)
    assert all(torch.equal(after.memory[client]["start"], whole.memory[client]["start"]) for client in whole.memory)


def test_what_is_kept_must_be_paid_for() -> None:
    with pytest.raises(UnsoundRound, match="made without noise"):
        round_of(local=Sgd(lr=0.1, epochs=1), client=(Clip(1.0), AddNoise(Gaussian(1.0))))


@pytest.mark.parametrize("make", [lambda: HelperBlend(1.1), lambda: HelperBlend(own=((1, -0.1),))])
def test_weights_are_shares(make: Any) -> None:
    with pytest.raises(BadValue, match="from 0 to 1"):
        make()


def with_tests() -> Population:
    clients = []
    for number in range(5):
        train, test = (made_up_population([9] * 5, seed=seed).client(number).train for seed in (0, 1))
        clients.append((*train, *test) if number != 3 else tuple(train))
    return Population.from_list(clients, name="tested")


def test_scores_are_those_of_each_clients_own_model() -> None:
    population, objective = with_tests(), classification(3)
    scores = PersonalScores(population, objective)
    for progress in simulate(round_of(), population, linear(), objective, rounds=4, seed=3, plan=Plan()):
        tests = {client: population.client(client).test for client in (0, 1, 2, 4)}
        expected = [evaluate(progress.personal_module(c), t, objective)["accuracy"] for c, t in tests.items() if t]
        assert scores(progress).values == pytest.approx(tuple(expected))
        shared = [evaluate(progress.module, t, objective)["accuracy"] for t in tests.values() if t]
        assert scores.of_global(progress).values == pytest.approx(tuple(shared))


def test_spread_and_worst_decile() -> None:
    found = Scores("accuracy", tuple(float(value) for value in np.linspace(0.05, 1.0, 20)))
    assert (found.mean, found.worst_decile) == (pytest.approx(0.525), pytest.approx(0.075))
    assert found.spread == pytest.approx(float(np.linspace(0.05, 1.0, 20).std()))
    assert Scores("accuracy", (0.5, 0.7)).worst_decile == 0.5
