"""The student: where votes go, what is asked next, and that it learns from released votes, public inputs and its key alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.linear_model import Ridge as TheirRidge
from torch import Tensor, nn

from sfumato import (
    AddNoise,
    Argmax,
    Everyone,
    Fit,
    Gaussian,
    Majority,
    Population,
    PublicData,
    Queries,
    Records,
    Ridge,
    Round,
    Student,
    Sum,
    VirtualAdversarial,
    Votes,
    classification,
    multi_label,
    simulate,
)  # fmt: skip
from sfumato.engine.checkpoint import Checkpoint
from sfumato.errors import BadValue, UnsoundRound
from sfumato.key import Key
from sfumato.models.build import build
from sfumato.objective import Objective
from sfumato.pieces.context import StepContext
from sfumato.update import Layout
from sfumato.voting.learners import Learner, Lesson
from sfumato.voting.virtual import Apart, attributes_apart, classes_apart
from tests.voting.test_votes import Labels


def public(count: int = 30, features: int = 4, targets: float = 0.0) -> PublicData:
    x = Key.from_seed(1).normal(count, features).float()
    return PublicData("made up", Records(x, torch.full((count,), targets)))


def step(
    module: nn.Module, objective: Objective, seed: int = 0, stddev: float | None = 1.0
) -> tuple[Tensor, StepContext]:
    """A module's parameters, and the surroundings of one step."""
    layout = Layout.of(module)

    def at(row: Tensor) -> nn.Module:
        found = copy.deepcopy(module)
        layout.write(row, found)
        return found

    return layout.row(module), StepContext(0, layout, objective, at, Key.from_seed(seed), stddev)


def lesson(classes: int = 3, count: int = 40) -> Lesson:
    key = Key.from_seed(5)
    pool = 3.0 * key.child("x").normal(count, 4).float() + torch.tensor([0.0, 5.0, -1.0, 2.0])
    y = torch.from_numpy((key.child("y").integers(20) % classes).astype("int64"))
    return Lesson(pool[:20], y, torch.from_numpy(key.child("w").uniform(20)).float() + 0.1, pool)


def test_votes_add_up_at_the_queries_that_were_asked_and_silence_is_no_label() -> None:
    """Against a loop over queries; a query that was not answered is passed over by the next choice all the same."""
    student = Student(Queries(public(5), 3), Ridge())
    params, context = step(build("logistic", (4,), 2, Key.from_seed(0)), classification(2), stddev=8.0)
    state = student.start(params)
    slow: dict[int, list[Tensor]] = {}
    for number in range(4):
        asked, released = student.queries.chosen(state), Key.from_seed(number).normal(3, 2).float() * 9
        released[number % 3] = 0.0
        for query, votes in zip(asked.tolist(), released, strict=True):
            slow.setdefault(query, []).extend([votes] if bool(votes.any()) else [])
        params, state = student.learn(params, state, released.reshape(-1), context)
    assert int(state["asked"].sum()) == 12 and int(state["asked"].max() - state["asked"].min()) <= 1
    numbers, targets, weights = student.labelled(state, 8.0)
    assert numbers.tolist() == sorted(query for query, votes in slow.items() if votes)
    assert len({len(votes) for votes in slow.values()}) > 1
    for query, target, weight in zip(numbers.tolist(), targets.tolist(), weights.tolist(), strict=True):
        total, times = torch.stack(slow[query]).sum(0), len(slow[query])
        margin = float(total.max() - total.min()) / (8.0 * math.sqrt(times))
        assert target == int(total.argmax())
        assert weight == pytest.approx(min(margin, 2.0) / 2.0 + 1e-3, rel=1e-5)


def test_half_of_the_declared_voters_decides_an_attribute() -> None:
    votes = torch.tensor([[51.0, 49.0, 99.0], [10.0, 3.0, 2.0]])
    targets, weights = Majority(100).read(votes, torch.tensor([10.0, 10.0]))
    assert targets.tolist() == [
        [1.0, 0.0, 1.0],
        [0.0, 0.0, 0.0],
    ]  # an arg max would call the last row's first one positive
    assert weights.tolist() == pytest.approx([(0.05 + 0.05 + 1.0) / 3 + 1e-3, 1.0 + 1e-3])
    assert Argmax().read(votes, torch.zeros(2))[1].tolist() == [1.0, 1.0]  # without noise


def asked_next(order: str) -> tuple[list[int], Tensor]:
    """What is asked after one round of ten, and the student's probabilities for the whole pool."""
    student = Student(Queries(public(), 10), Ridge(), order=order)
    params, context = step(build("logistic", (4,), 3, Key.from_seed(0)), classification(3))
    params, state = student.learn(params, student.start(params), Key.from_seed(3).normal(30).float(), context)
    with torch.no_grad():
        outputs = context.module(params)(student.queries.pool)
    return student.queries.chosen(state).tolist(), outputs.softmax(1)


def test_what_is_asked_next() -> None:
    left = list(range(10, 30))
    assert asked_next("in-order")[0] == left[:10]
    chosen, chances = asked_next("uncertain")
    margins = {one: float(chances[one].topk(2).values @ torch.tensor([1.0, -1.0])) for one in left}
    assert chosen == sorted(left, key=lambda one: margins[one])[:10]
    chosen, chances = asked_next("balanced")
    piles = [[one for one in left if int(chances[one].argmax()) == label] for label in range(3)]
    turns = [sorted(pile[turn] for pile in piles if turn < len(pile)) for turn in range(20)]
    assert chosen == [one for turn in turns for one in turn][:10]
    with pytest.raises(BadValue, match="no classes"):
        Student(Queries(None, 1), Ridge(), Majority(9), "balanced")


def test_ridge_is_weighted_ridge_regression_on_inputs_that_the_pool_standardises() -> None:
    """Against scikit-learn, on classes and on attributes; without the weights another module comes out."""
    some = lesson()
    spread = some.pool.double().std(0, correction=0)
    inputs = (some.x.double() - some.pool.double().mean(0)) / ((spread + 0.01 * spread.mean()) * 2.0)
    inputs = torch.cat([inputs, torch.ones(20, 1)], 1)
    for y in (some.y, torch.eye(3)[some.y]):
        module = build("logistic", (4,), 3, Key.from_seed(0))
        for weights in (torch.ones(20), some.weights):
            Ridge(0.3).teach(module, replace(some, y=y, weights=weights), step(module, classification(3))[1])
        targets = torch.eye(3)[some.y] - (0.5 if y.is_floating_point() else 1 / 3)
        theirs = TheirRidge(0.3, fit_intercept=False).fit(inputs, targets, some.weights)
        plain = TheirRidge(0.3, fit_intercept=False).fit(inputs, targets)
        found = module(some.x).detach().double()
        torch.testing.assert_close(found, torch.from_numpy(theirs.predict(inputs)).double(), rtol=0, atol=1e-5)
        assert (found - torch.from_numpy(plain.predict(inputs))).abs().max() > 1e-3


@pytest.mark.parametrize(
    "learner", [Ridge(), Fit(20), VirtualAdversarial(Fit(5), batch_size=8)], ids=lambda one: type(one).__name__
)
def test_a_learner_draws_from_its_key_alone(learner: Learner) -> None:
    module = build("logistic", (4,), 3, Key.from_seed(0))
    found = []
    for seed in (0, 0, 1):
        before, taught = torch.get_rng_state(), copy.deepcopy(module)
        learner.teach(taught, lesson(), step(module, classification(3), seed)[1])
        assert torch.equal(before, torch.get_rng_state())
        found.append(Layout.of(taught).row(taught))
    assert torch.equal(found[0], found[1])
    assert isinstance(learner, Ridge) or not torch.equal(found[0], found[2])


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_fit_lowers_the_weighted_loss(optimizer: str) -> None:
    some, objective = lesson(), classification(3)
    module = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    with torch.no_grad():
        for nth, part in enumerate(module.parameters()):
            part.copy_(0.4 * Key.from_seed(nth).normal(*part.shape))
    some = replace(some, weights=torch.cat([torch.full((10,), 1e-3), torch.ones(10)]))

    def losses() -> Tensor:
        return objective.loss(module(some.x), some.y).detach().reshape(2, 10).mean(1)

    before = losses()
    Fit(300, 0.02, 10, optimizer).teach(module, some, step(module, objective)[1])
    ignored, heard = (losses() / before).tolist()
    assert heard < 0.35 and heard < ignored


def test_divergences_are_those_of_torch() -> None:
    before, after = Key.from_seed(0).normal(2, 5, 3).float()
    classes = torch.distributions.kl_divergence(
        *(torch.distributions.Categorical(logits=one) for one in (before, after))
    )
    torch.testing.assert_close(classes_apart(before, after), classes.mean())
    attributes = torch.distributions.kl_divergence(
        *(torch.distributions.Bernoulli(logits=one) for one in (before, after))
    )
    torch.testing.assert_close(attributes_apart(before, after), attributes.mean())


@pytest.mark.parametrize("attributes", [False, True])
def test_virtual_adversarial_training_flattens_predictions_around_the_whole_pool(attributes: bool) -> None:
    """In the plane, where all directions can be tried: the one that is found is nearly the worst, and training lowers the worst."""
    pool, y = Key.from_seed(2).normal(60, 2).float(), torch.arange(60) % 2
    pool[:, 0] += 2.0 * y - 1.0
    some = Lesson(pool[:8], torch.eye(2)[y[:8]] if attributes else y[:8], torch.ones(8), pool)
    module = nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 2))
    with torch.no_grad():
        for nth, part in enumerate(module.parameters()):
            part.copy_(0.6 * Key.from_seed(nth).normal(*part.shape))
    angles = torch.arange(32) * (2 * math.pi / 32)
    circle = torch.stack([angles.cos(), angles.sin()], 1)
    apart = attributes_apart if attributes else classes_apart

    def worst(student: nn.Module, x: Tensor, radius: float) -> float:
        with torch.no_grad():
            before = student(x)
            return max(float(apart(before, student(x + radius * way))) for way in circle)

    fit = Fit(80, 0.02, 8)
    smooth = VirtualAdversarial(fit, radius=0.3, probe=1e-3, iterations=4, batch_size=30)
    sharp = []
    for learner in (fit, smooth):
        taught = copy.deepcopy(module)
        learner.teach(taught, some, step(module, multi_label(2) if attributes else classification(2))[1])
        sharp.append(sum(worst(taught, one[None], 0.3) for one in pool[8:28]))
    assert sharp[1] < 0.5 * sharp[0]
    near = replace(smooth, radius=0.01)
    found = [float(near.divergence(module, one[None], torch.tensor([[0.6, 0.8]]), apart).detach()) for one in pool[:20]]
    share = torch.tensor(found) / torch.tensor([worst(module, one[None], 0.01) for one in pool[:20]])
    assert share.median() > 0.95 and share.mean() > 0.8  # beside a kink, a probe may see the other side of it


def test_inputs_are_moved_as_far_as_their_scale_allows() -> None:
    """A radius that suits pixels would drown features of unit norm: it is counted in the pool's own spread."""
    seen: list[float] = []

    @dataclass(frozen=True)
    class Watched(VirtualAdversarial):
        def divergence(self, student: nn.Module, x: Tensor, way: Tensor, apart: Apart, unit: float = 1.0) -> Tensor:
            seen.append(unit)
            return super().divergence(student, x, way, apart, unit)

    pool, module = Key.from_seed(0).normal(400, 5).float() * torch.tensor([3.0, 4.0, 0.0, 0.0, 0.0]), nn.Linear(5, 2)
    for scale in (1.0, 0.01):
        lesson = Lesson(scale * pool[:9], torch.arange(9) % 2, torch.ones(9), scale * pool + 7.0)
        Watched(Fit(1)).teach(module, lesson, step(module, classification(2))[1])
    assert seen[0] == pytest.approx(5.0, rel=0.1) and seen[1] == pytest.approx(0.01 * seen[0])


def voting(queries: Queries, student: Student, noise: float = 1.0) -> Round:
    server = (AddNoise(Gaussian(noise / math.sqrt(queries.count))),)
    return Round(
        sample=Everyone(), local=Votes(Labels(), queries, 3), aggregate=Sum(), server=server, optimizer=student
    )


def people() -> Population:
    x = Key.from_seed(8).normal(6, 2, 4).float()
    return Population.from_list([(x[one], torch.tensor([one % 3, 1])) for one in range(6)], name="six", ids=range(6))


def trained(folder: Path, stop: bool = False) -> Checkpoint:
    """Three rounds; or one, and then the others by going on."""
    queries = Queries(public(), 7)
    round = voting(queries, Student(queries, Fit(10), order="uncertain"))
    options: dict[str, Any] = {"rounds": 3, "seed": 3, "folder": folder}
    for resume in (False, True) if stop else (False,):
        for _ in simulate(round, people(), "logistic", classification(3), resume=resume, **options):
            if stop and not resume:
                break
    found = Checkpoint.read(folder)
    assert found is not None
    return found


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return torch.equal(one.params, other.params) and all(
        torch.equal(one.state[name], other.state[name]) for name in one.state
    )


def test_a_run_that_goes_on_is_the_run(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole")
    assert sorted(whole.state) == ["answered", "asked", "priority", "votes"]
    assert int(whole.state["asked"].sum()) == 21
    assert same(whole, trained(tmp_path / "parts", stop=True))


def test_labels_that_public_records_have_are_never_read() -> None:
    assert torch.equal(_one_step(public(targets=0.0)), _one_step(public(targets=2.0)))


def _one_step(data: PublicData) -> Tensor:
    params, context = step(build("logistic", (4,), 3, Key.from_seed(0)), classification(3))
    student = Student(Queries(data, 7), Fit(5), order="balanced")
    return student.learn(params, student.start(params), Key.from_seed(4).normal(21).float(), context)[0]


def test_refused_before_anything_is_spent(tmp_path: Path) -> None:
    queries = Queries(public(), 7)
    cases: list[tuple[str, Student, Callable[[], nn.Module]]] = [
        ("one linear layer", Student(queries, Ridge()), lambda: build("mlp", (4,), 3, Key.from_seed(0))),
        ("Majority", Student(queries, Ridge(), Majority(6)), lambda: build("logistic", (4,), 3, Key.from_seed(0))),
        (
            "same queries",
            Student(replace(queries, count=6), Ridge()),
            lambda: build("logistic", (4,), 3, Key.from_seed(0)),
        ),
    ]
    for why, student, module in cases:
        with pytest.raises(BadValue, match=why):
            list(simulate(voting(queries, student), people(), module(), classification(3), rounds=1, folder=tmp_path))
        assert not list(tmp_path.iterdir())


def test_votes_that_nothing_paid_for_are_refused_and_the_public_pool_is_named() -> None:
    queries = Queries(public(), 7)
    slots: dict[str, Any] = {"sample": Everyone(), "local": Votes(Labels(), queries, 3), "aggregate": Sum()}
    with pytest.raises(UnsoundRound, match="nothing has paid for"):
        Round(**slots, optimizer=Student(queries, Ridge()))
    Round(**slots, optimizer=Student(queries, Ridge()), nonprivate=True)
    proof = voting(queries, Student(queries, Ridge())).derive(population=6, dimension=15).primary
    assert queries.public is not None and queries.public.declared in proof.assumptions
