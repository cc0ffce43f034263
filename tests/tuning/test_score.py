"""The score that is paid for: rows between 0 and 1 whatever a client holds, and what one record or one client moves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sfumato import Everyone, FixedSize, Poisson, Relation, Round, Unit, recipes
from sfumato.account.event import GaussianEvent
from sfumato.data.population import Population, Records
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.gradients import OneByOne
from sfumato.key import Key
from sfumato.local.task import Task
from sfumato.objective import classification, multi_label, regression
from sfumato.tuning import score as home
from sfumato.tuning.score import KeepRelease, Score, right, scoring_round
from sfumato.update import Layout
from tests.helpers import dp_round, linear, made_up_population

NUMBERS = st.sampled_from([0.0, 0.3, -0.3, 1.0, -7.0, 1e30, -1e38, math.inf, -math.inf, math.nan])


def same() -> nn.Module:
    """Outputs are inputs."""
    module = nn.Linear(2, 2)
    with torch.no_grad():
        module.weight.copy_(torch.eye(2))
        module.bias.zero_()
    return module


def rows_of(score: Score, module: nn.Module, clients: list[Records]) -> torch.Tensor:
    layout = Layout.of(module)
    params = layout.row(module)
    starts, keys = params.expand(len(clients), -1), [Key.from_seed(0)] * len(clients)
    return score.train(Task(OneByOne(module), layout, classification(2).loss, params, starts, clients, keys, 0))


def records(outputs: list[tuple[float, float]], y: list[int]) -> Records:
    return Records(torch.tensor(outputs).reshape(-1, 2), torch.tensor(y, dtype=torch.int64))


def slow_right(outputs: list[float], y: int) -> float:
    """One record, by the definition."""
    margin = outputs[y] - max(other for place, other in enumerate(outputs) if place != y)
    return min(1.0, max(0.0, 0.5 + margin / 2))


@given(
    st.lists(st.lists(st.floats(-3, 3, width=32), min_size=4, max_size=4), min_size=1, max_size=6), st.integers(0, 3)
)
def test_a_record_is_as_right_as_its_definition_says(outputs: list[list[float]], y: int) -> None:
    found = right(torch.tensor(outputs), torch.full((len(outputs),), y))
    np.testing.assert_allclose(found, [slow_right(one, y) for one in outputs], atol=1e-6)


def test_text_is_the_mean_over_its_characters() -> None:
    outputs = torch.tensor([[[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]]])
    assert right(outputs, torch.tensor([[0, 0, 0]])).tolist() == pytest.approx([0.5])


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5), st.integers(0, 31), st.sampled_from([0, 1, 3]))
def test_rows_lie_between_0_and_1_whatever_a_client_holds(outputs: list[Any], bits: int, declared: int) -> None:
    held = records(outputs, [bits >> place & 1 for place in range(len(outputs))])
    (row,) = rows_of(Score(declared), same(), [held]).flatten().tolist()
    assert 0.0 <= row <= 1.0


def test_a_model_that_is_broken_scores_nothing() -> None:
    module = same()
    with torch.no_grad():
        module.weight.fill_(math.nan)
    assert rows_of(Score(), module, [records([(1.0, 0.0)], [0])]).tolist() == [[0.0]]


@given(st.data(), st.integers(1, 4))
def test_one_record_moves_a_declared_sum_by_no_more_than_its_share(data: st.DataObject, declared: int) -> None:
    held = data.draw(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 1)), min_size=1, max_size=6))
    place, other = data.draw(st.integers(0, len(held) - 1)), data.draw(st.tuples(NUMBERS, NUMBERS, st.integers(0, 1)))
    rest = held[:place] + held[place + 1 :]
    worlds = [records([one[:2] for one in world], [one[2] for one in world]) for world in (held, rest, [*rest, other])]
    whole, less, swapped = rows_of(Score(declared), same(), worlds).flatten().tolist()
    assert max(abs(whole - less), abs(whole - swapped), abs(less - swapped)) <= 1 / declared + 1e-7


def test_a_target_that_is_no_class_is_never_right() -> None:
    """Cross-entropy passes over -100, so a client may have trained with it: it must not tell that by an error."""
    found = right(torch.tensor([[9.0, 0.0]] * 4), torch.tensor([-100, -1, 2, 0]))
    assert found.tolist() == [0.0, 0.0, 0.0, 1.0]


def test_the_bound_of_a_record_is_attained() -> None:
    worlds = [records([(9.0, 0.0)] * 2, [0, 0]), records([(9.0, 0.0)], [0]), records([(9.0, 0.0)] * 2, [0, 1])]
    whole, less, swapped = rows_of(Score(5), same(), worlds).flatten().tolist()
    assert whole - less == whole - swapped == pytest.approx(1 / 5)


def test_many_records_are_scored_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    held = made_up_population([11], features=2, classes=2).client(0).train
    whole = rows_of(Score(), same(), [held])
    monkeypatch.setattr(home, "_AT_ONCE", 4)
    torch.testing.assert_close(rows_of(Score(), same(), [held]), whole)
    assert whole.item() == pytest.approx(right(held.x, held.y).mean().item())


def price(trained: Round, noise: float, unit: Unit, records: int = 0, population: int = 40) -> Any:
    return scoring_round(trained, noise, records).derive(population=population, dimension=1).units[unit]


@pytest.mark.parametrize(
    ("sample", "relation"),
    [
        (Poisson(0.5), Relation.ADD_REMOVE),
        (Poisson(0.5, relation=Relation.REPLACE), Relation.REPLACE),
        (FixedSize(3), Relation.REPLACE),
        (FixedSize(3, relation=Relation.ZERO_OUT), Relation.ZERO_OUT),
        (Everyone(relation=Relation.ZERO_OUT), Relation.ZERO_OUT),
    ],
    ids=str,
)
def test_a_client_moves_the_sum_by_1_under_the_relation_of_the_training(sample: Any, relation: Relation) -> None:
    proof = price(dp_round(sample=sample), 2.0, Unit.CLIENT)
    assert proof.relation is relation and proof.world == GaussianEvent(2.0)
    assert proof.server is None, "the server sees the rows, so it must be trusted"
    swapped = proof.swapped or proof
    assert swapped.relation is Relation.REPLACE and swapped.world == GaussianEvent(2.0), "rows are 1 apart, not 2"
    record = price(dp_round(sample=sample), 2.0, Unit.RECORD)
    assert (record.swapped or record).world == GaussianEvent(2.0), "one record may be all that a mean is of"


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_a_record_of_a_declared_number_moves_it_by_its_share(relation: str) -> None:
    trained = recipes.build("dp-sgd", 1, {"records": 50, "relation": relation}, None)
    proof = price(trained, 2.0 / 50, Unit.RECORD, records=50, population=1)
    assert proof.unit is Unit.RECORD and proof.relation == relation
    assert isinstance(proof.world, GaussianEvent) and proof.world.ratio == pytest.approx(2.0)


def test_a_mean_has_no_proof_where_records_join() -> None:
    for bad in ({"records": 0, "relation": Relation.ADD_REMOVE}, {"records": -1}):
        with pytest.raises(BadValue, match="declare how many there are"):
            Score(**bad)  # type: ignore[arg-type]


def test_what_is_released_is_the_sum_with_noise_and_the_model_stays() -> None:
    people, module = made_up_population([3] * 6), linear()
    truth = rows_of(Score(), module, [people.client(one).train for one in range(6)]).sum().item()
    scoring, found = scoring_round(dp_round(), 0.7), []
    for seed in range(80):
        *_, last = simulate(scoring, people, module, classification(3), rounds=1, seed=seed)
        found.append(float(last.state["release"]))
    assert torch.equal(Layout.of(module).row(last.module), Layout.of(module).row(module))
    assert np.mean(found) == pytest.approx(truth, abs=4 * 0.7 / math.sqrt(80))
    assert 2 / 3 < np.std(found) / 0.7 < 3 / 2
    start = KeepRelease().start(torch.zeros(3))
    assert start["release"].tolist() == [0.0]


@pytest.mark.parametrize("objective", [regression(), multi_label(3)], ids=lambda one: one.name)
def test_targets_that_are_no_classes_are_refused(objective: Any) -> None:
    clients = [(torch.ones(2, 6), torch.ones(2, 3)) for _ in range(4)]
    people = Population.from_list(clients, name="numbers")
    with pytest.raises(
        BadValue, match="are no classes, so there is no share of right answers to choose by. Use --proxy"
    ):
        simulate(scoring_round(dp_round(), 1.0), people, linear(), objective, rounds=1, seed=0)
