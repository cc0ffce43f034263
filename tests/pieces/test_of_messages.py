"""Aggregates that see messages: what they compute, where they are refused, and that no plan changes what comes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sfumato import (
    AdaptiveClip,
    AddNoise,
    Clip,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    GeometricMedian,
    HelperBlend,
    MeanThenPublic,
    Median,
    ModeConnectivity,
    NoiseShare,
    Plan,
    Poisson,
    PublicData,
    Records,
    Relation,
    Round,
    SecureSum,
    Sgd,
    SharedMask,
    Shuffler,
    TowardWeakest,
    TrimmedMean,
    Unit,
    UnsoundRound,
    classification,
    ensemble,
    evaluate,
)  # fmt: skip
from sfumato.account.event import GaussianEvent, Mixture
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.objective import Objective
from sfumato.pieces.connectivity import Curve, Ensemble, bend_of_theorem_5
from sfumato.pieces.context import MessageContext
from sfumato.testing.piece import claim_for
from sfumato.update import Layout
from tests.helpers import linear, made_up_population

PEOPLE = made_up_population([9, 12, 8, 10, 9, 11, 8])
PUBLIC = PublicData("public", made_up_population([40], seed=5).client(0).train)
LOCAL = DpSgd(2, Poisson(0.5), 8)
AT_CLIENT = (Clip(1.0), AddNoise(Gaussian(2.0)))
EVERY = [
    Median(),
    TrimmedMean(0.2),
    GeometricMedian(),
    TowardWeakest(Median(), {client: 1.0 + client for client in range(7)}),
    ModeConnectivity(PUBLIC, steps=3),
    MeanThenPublic(PUBLIC, steps=3),
]


def of_records(aggregate: Any, **changed: Any) -> Round:
    slots: dict[str, Any] = {"sample": Everyone(), "local": LOCAL, "aggregate": aggregate, "unit": Unit.RECORD}
    return Round(**{**slots, **changed})


def of_clients(aggregate: Any, **changed: Any) -> Round:
    slots: dict[str, Any] = {
        "sample": Poisson(0.5, Relation.REPLACE), "local": Sgd(lr=0.1, epochs=1), "client": AT_CLIENT, "aggregate": aggregate,
    }  # fmt: skip
    return Round(**{**slots, **changed})


def context(params: torch.Tensor | None = None, **changed: Any) -> MessageContext:
    module = linear()
    layout = Layout.of(module)

    def with_params(row: torch.Tensor) -> torch.nn.Module:
        fresh = linear()
        layout.write(row, fresh)
        return fresh

    params = layout.row(module) if params is None else params
    slots = (0, layout, claim_for(layout.dimension), params, classification(3), with_params, Key.from_seed(1))
    return replace(MessageContext(*slots), **changed)


@pytest.mark.parametrize("aggregate", EVERY, ids=lambda one: type(one).__name__)
def test_they_are_free_where_every_message_is_private(aggregate: Any) -> None:
    found = of_clients(aggregate).derive(population=100, dimension=21).primary
    assert found.world == found.server == Mixture(0.5, GaussianEvent(1.0))
    plain = of_records(TrimmedMean(0.0)).derive(population=100, dimension=21).primary
    assert of_records(aggregate).derive(population=100, dimension=21).primary.world == plain.world


@pytest.mark.parametrize("aggregate", EVERY, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"client": (Clip(1.0),), "server": (AddNoise(Gaussian(1.0)),), "sample": Poisson(0.5)}, "not private yet"),
        ({"client": (Clip(1.0), NoiseShare(Gaussian(1.0), 4)), "sample": FixedSize(9)}, "share of the noise only"),
        ({"channel": SecureSum()}, "nothing but their sum"),
        ({"client": (), "local": LOCAL}, "not private yet"),  # for clients nothing is paid by private steps
    ],
    ids=["noise at the server", "shares", "secure sum", "records only"],
)
def test_they_are_refused_elsewhere(aggregate: Any, changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsoundRound, match=reason):
        of_clients(aggregate, **changed)


def test_a_baseline_may_use_them() -> None:
    *_, progress = simulate(
        of_clients(Median(), client=(), nonprivate=True),
        PEOPLE,
        linear(),
        classification(3),
        rounds=2,
        seed=0,
        plan=Plan(),
    )
    assert progress.epsilon(1e-3) is None and progress.params.isfinite().all()


@pytest.mark.parametrize("aggregate", EVERY, ids=lambda one: type(one).__name__)
def test_no_number_of_workers_changes_a_bit(aggregate: Any) -> None:
    found = []
    for plan in (Plan(), Plan(workers=2)):
        *_, progress = simulate(of_records(aggregate), PEOPLE, linear(), classification(3), rounds=2, seed=0, plan=plan)
        found.append(progress.params)
    assert torch.equal(*found)


def test_an_empty_cohort_moves_nothing() -> None:
    run = simulate(
        of_records(Median(), sample=Poisson(1e-9)), PEOPLE, linear(), classification(3), rounds=2, seed=0, plan=Plan()
    )
    *_, progress = run
    assert torch.equal(progress.params, run.start.params)


def test_a_mask_is_undone_and_models_must_be_whole() -> None:
    masked = (SharedMask(0.4), *AT_CLIENT)
    *_, progress = simulate(
        of_clients(Median(), client=masked), PEOPLE, linear(), classification(3), rounds=2, seed=0, plan=Plan()
    )
    assert progress.params.shape == (21,)
    for client in (masked, (AdaptiveClip(), AddNoise(Gaussian(2.0)))):
        with pytest.raises(BadValue, match="model's own 21 coordinates"):
            simulate(of_clients(EVERY[4], client=client), PEOPLE, linear(), classification(3), rounds=1, seed=0)


def test_more_messages_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 1000 if name == "SC_AVPHYS_PAGES" else 1)
    with pytest.raises(BadValue, match="GiB are free"):
        simulate(of_records(Median()), PEOPLE, linear(), classification(3), rounds=1, seed=0)


def rows(*shape: int, seed: int = 3) -> torch.Tensor:
    return Key.from_seed(seed).normal(*shape).float()


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_medians_and_trimmed_means_are_numpys(count: int) -> None:
    messages = rows(count, 21)
    assert np.allclose(Median().combine(messages, context()), np.median(messages.double(), axis=0), atol=1e-12)
    ordered = np.sort(messages.double().numpy(), axis=0)
    dropped = int(0.2 * count)
    expected = ordered[dropped : count - dropped].mean(axis=0)
    assert np.allclose(TrimmedMean(0.2).combine(messages, context()), expected, atol=1e-12)
    assert np.allclose(TrimmedMean(0.0).combine(messages, context()), messages.double().mean(0), atol=1e-12)


def test_the_geometric_median_is_the_nearest_point_to_all() -> None:
    messages = torch.cat([rows(7, 21), 100.0 + rows(2, 21, seed=4)])
    found = GeometricMedian(200).combine(messages, context())

    def far(point: torch.Tensor) -> float:
        return float((messages.double() - point).norm(dim=1).sum())

    for nth in range(30):
        assert far(found) <= far(found + 0.01 * rows(21, seed=nth).double()) + 1e-9
    assert (found - messages[:7].double().mean(0)).norm() < 0.2 * (messages.double().mean(0) - found).norm()
    same = torch.ones(3, 21)
    assert torch.allclose(GeometricMedian().combine(same, context()), same[0].double())
    assert GeometricMedian().combine(torch.stack([same[0], same[0], -same[0]]), context()).isfinite().all()


@pytest.mark.parametrize(
    "make",
    [lambda: TrimmedMean(0.5), lambda: TrimmedMean(-0.1), lambda: GeometricMedian(0), lambda: GeometricMedian(5, 0.0)],
)
def test_settings_that_make_no_sense(make: Any) -> None:
    with pytest.raises(BadValue):
        make()


def test_the_pull_is_toward_the_weakest_privacy() -> None:
    messages, budgets = rows(4, 21), {7: 1.0, 3: 4.0, 5: 2.0, 9: 4.0}
    seen = context(clients=(7, 3, 5, 9))
    found = TowardWeakest(TrimmedMean(0.0), budgets).combine(messages, seen)
    weakest = (messages[1] + messages[3]).double() / 2
    moved = [m.double() + s * (weakest - m.double()) for m, s in zip(messages, (0.75, 0.0, 0.5, 0.0), strict=True)]
    assert torch.allclose(found, torch.stack(moved).mean(0))
    alone = TowardWeakest(Median(), {7: 1.0, 3: float("inf"), 5: 2.0, 9: 3.0}).combine(messages, seen)
    assert torch.allclose(alone, messages[1].double())  # no noise at all: everybody leans on that one alone
    assert torch.allclose(
        TowardWeakest(Median(), budgets, strength=0.0).combine(messages, seen), Median().combine(messages, seen)
    )
    for clients in (None, (1, 2, 3, 4)):
        with pytest.raises(BadValue, match="every sender's epsilon"):
            TowardWeakest(Median(), budgets).combine(messages, context(clients=clients))
    with pytest.raises(UnsoundRound, match="does not show it"):
        of_clients(TowardWeakest(Median(), budgets), channel=Shuffler(), sample=Everyone(Relation.REPLACE))
    with pytest.raises(BadValue, match="positive epsilon"):
        TowardWeakest(Median(), {1: 0.0})


@pytest.mark.parametrize("kind", ["bezier", "chain"])
def test_a_curve_goes_through_its_ends(kind: str) -> None:
    first, bend, last = rows(3, 21)
    curve = Curve(first, bend, last, kind)
    assert torch.equal(curve.at(0.0), first) and torch.equal(curve.at(1.0), last)
    assert torch.allclose(curve.at(0.5), bend if kind == "chain" else first / 4 + bend / 2 + last / 4)
    assert torch.allclose(curve.at(0.75), (bend + last) / 2 if kind == "chain" else (first + 6 * bend + 9 * last) / 16)
    assert all(sum(curve.weights(at)) == pytest.approx(1.0) for at in np.linspace(0, 1, 11))


def loss_along(curve: Curve, seen: MessageContext, records: Records) -> float:
    places = np.linspace(0.0, 1.0, 21)
    return float(np.mean([evaluate(seen.module(curve.at(at)), records, seen.objective)["loss"] for at in places]))


@pytest.mark.parametrize("kind", ["bezier", "chain"])
def test_the_bend_is_trained_on_public_data(kind: str) -> None:
    seen = context()
    first, last = rows(2, 21)
    piece = ModeConnectivity(PUBLIC, kind, steps=60, lr=0.5)
    found = piece.connect(first, last, seen, Key.from_seed(2))
    assert torch.equal(found.first, first) and torch.equal(found.last, last)
    straight = Curve(first, (first + last) / 2, last, kind)
    assert loss_along(found, seen, PUBLIC.records) < loss_along(straight, seen, PUBLIC.records)


@pytest.mark.parametrize("kind", ["bezier", "chain"])
def test_a_step_is_the_gradient_with_respect_to_the_bend(kind: str) -> None:
    """The slow twin: torch differentiates the loss at a point of the curve through the bend itself."""
    seen, piece, key = context(), ModeConnectivity(PUBLIC, kind, steps=4, lr=0.3, batch_size=7), Key.from_seed(8)
    first, last = rows(2, 21)
    bend = (first + last) / 2
    for step in range(4):
        at = float(key.child("places").uniform(4)[step])
        drawn = torch.from_numpy((key.child("batch", step=step).integers(7) % np.uint64(40)).astype(np.int64))
        leaf = bend.clone().requires_grad_()
        if kind == "bezier":
            model = (1 - at) ** 2 * first + 2 * at * (1 - at) * leaf + at**2 * last
        else:
            model = 2 * (at * leaf + (0.5 - at) * first) if at <= 0.5 else 2 * ((at - 0.5) * last + (1 - at) * leaf)
        named = seen.layout.split(model)
        outputs = torch.func.functional_call(linear(), named, (PUBLIC.records.x[drawn],))
        (gradient,) = torch.autograd.grad(seen.objective.loss(outputs, PUBLIC.records.y[drawn]).mean(), leaf)
        bend = bend - 0.3 * gradient
    assert torch.allclose(piece.connect(first, last, seen, key).bend, bend, atol=1e-6)


@pytest.mark.parametrize("count", range(1, 8))
def test_pairs_are_disjoint_with_a_bye_and_it_ends(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[tuple[float, float]] = []

    def connect(self: Any, first: torch.Tensor, last: torch.Tensor, *_: Any) -> Curve:
        joined.append((float(first[0]), float(last[0])))
        return Curve(first, torch.full_like(first, 100.0 + len(joined)), last, "chain")

    monkeypatch.setattr(ModeConnectivity, "connect", connect)
    messages = torch.arange(float(count))[:, None].expand(-1, 21)
    found = ModeConnectivity(PUBLIC, "chain").combine(messages, context(params=torch.zeros(21)))
    assert len(joined) == count - 1  # every pair leaves one model fewer
    used = [model for pair in joined for model in pair]
    assert len(set(used)) == len(used)  # nobody is in two pairs
    assert float(found[0]) == (0.0 if count == 1 else 100.0 + len(joined))
    if count == 5:
        assert joined == [(0, 1), (2, 3), (101, 102), (103, 4)]


def test_the_control_takes_as_many_gradients() -> None:
    taken: list[int] = []

    def counting(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        taken.append(len(y))
        return classification(3).loss(outputs, y)

    seen = context(objective=Objective(counting))
    for aggregate in (ModeConnectivity(PUBLIC, steps=3), MeanThenPublic(PUBLIC, steps=3)):
        taken.clear()
        aggregate.combine(rows(5, 21), seen)
        assert len(taken) == 4 * 3
    still = MeanThenPublic(PUBLIC, steps=0).combine(rows(5, 21), context())
    assert torch.allclose(still, rows(5, 21).mean(0), atol=1e-6)


def test_the_control_is_plain_descent_from_the_mean() -> None:
    seen, piece = context(), MeanThenPublic(PUBLIC, steps=2, lr=0.3, batch_size=9)
    row = (seen.params + rows(3, 21).mean(0)).clone()
    for step in range(4):
        drawn = torch.from_numpy((seen.key.child("batch", step=step).integers(9) % np.uint64(40)).astype(np.int64))
        leaf = row.clone().requires_grad_()
        outputs = torch.func.functional_call(linear(), seen.layout.split(leaf), (PUBLIC.records.x[drawn],))
        (gradient,) = torch.autograd.grad(seen.objective.loss(outputs, PUBLIC.records.y[drawn]).mean(), leaf)
        row = row - 0.3 * gradient
    assert torch.allclose(piece.combine(rows(3, 21), seen), row - seen.params, atol=1e-6)


@pytest.mark.parametrize("make", [ModeConnectivity, MeanThenPublic])
@pytest.mark.parametrize("data", [PEOPLE, PEOPLE.client(0).train, None], ids=["population", "records", "nothing"])
def test_other_than_public_data_are_refused(make: Any, data: Any) -> None:
    with pytest.raises(UnsoundRound, match="not PublicData"):
        of_records(make(data))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ModeConnectivity(PUBLIC, "circle"),
        lambda: ModeConnectivity(PUBLIC, point=1.5),
        lambda: ModeConnectivity(PUBLIC, lr=0.0),
        lambda: MeanThenPublic(PUBLIC, steps=-1),
        lambda: ensemble(Curve(torch.zeros(21), torch.zeros(21), torch.zeros(21)), lambda row: linear(), 0),
    ],
)
def test_curves_that_make_no_sense(make: Any) -> None:
    with pytest.raises(BadValue):
        make()


def test_an_ensemble_averages_predictions_along_the_curve() -> None:
    seen, x = context(), PUBLIC.records.x
    curve = Curve(*rows(3, 21))
    models = [seen.module(curve.at(at)) for at in (0.0, 0.25, 0.5, 0.75, 1.0)]
    outputs = torch.stack([model(x) for model in models])
    assert torch.allclose(ensemble(curve, seen.module)(x), outputs.mean(0), atol=1e-6)
    shares = ensemble(curve, seen.module, probabilities=True)(x).exp()
    assert torch.allclose(shares, outputs.softmax(-1).mean(0), atol=1e-6)
    assert torch.allclose(ensemble(curve, seen.module, points=1)(x), seen.module(curve.at(0.5))(x))
    assert evaluate(Ensemble(models, True), PUBLIC.records, classification(3))["loss"] > 0.0


def test_theorem_5_with_its_moment_put_right() -> None:
    """The expected point of the curve is one step of length 1/L away; the paper's 1/12 is the variance, not E r^2 = 1/3."""
    previous, stepped = rows(2, 21).double()
    bend = bend_of_theorem_5(previous, stepped, smoothness=4.0)
    r = torch.from_numpy(Key.from_seed(0).uniform(200_000))
    moments = [float(((1 - r) ** 2).mean()), float((2 * r * (1 - r)).mean()), float((r**2).mean())]
    expected = moments[0] * stepped + moments[1] * bend + moments[2] * previous
    assert (expected - previous).norm() == pytest.approx(0.25, abs=0.02)
    assert torch.nn.functional.cosine_similarity(expected - previous, stepped - previous, dim=0) > 0.99
    # with the second moment 1/12 the weights are 1/12, 10/12 and 1/12: what is printed
    printed = 1.1 * previous - 0.1 * stepped
    assert torch.allclose(stepped / 12 + printed * 10 / 12 + previous / 12, previous)
    for wrong in (
        lambda: bend_of_theorem_5(previous, stepped, 0.0),
        lambda: bend_of_theorem_5(previous, previous, 1.0),
    ):
        with pytest.raises(BadValue):
            wrong()


def test_personal_models_and_aggregates_of_messages_go_together() -> None:
    round = of_records(Median(), personal=HelperBlend(0.3), sample=Poisson(0.7))
    *_, progress = simulate(round, PEOPLE, linear(), classification(3), rounds=3, seed=0, plan=Plan())
    assert progress.memory and all(list(kept) == ["start"] for kept in progress.memory.values())


def test_what_is_public_is_named_and_not_printed() -> None:
    steps = of_records(EVERY[4]).derive(population=7, dimension=21).primary.steps
    (said,) = [step.piece for step in steps if step.slot == "aggregate"]
    assert said == "ModeConnectivity(public=PublicData(name='public'), steps=3)"
    for aggregate in (*EVERY[4:], TowardWeakest(EVERY[4], {}, default=1.0)):
        assumed = of_records(aggregate).derive(population=7, dimension=21).primary.assumptions
        assert "the records of public are public: nothing hides them" in assumed
